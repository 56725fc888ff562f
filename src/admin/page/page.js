'use strict';
// Shows what the JSON of this port says. Every text goes into the page as text; rows are kept and changed in place, so
// that nothing jumps, and focus and selections stay.

const EVERY = 2000, SLOW = 10000, WINDOW = 10, LIMIT = 50;
const $ = (id) => document.getElementById(id);

// === small things

function set(node, text, tone) {
  text = String(text);
  if (node.textContent !== text) node.textContent = text;
  if (tone !== undefined) for (const t of ['good', 'warn', 'bad']) node.classList.toggle(t, t === tone);
}

function make(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) if (value !== undefined) node[name] = value;
  node.append(...children);
  return node;
}

async function ask(path, options) {
  const answer = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(15000), ...options });
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(told.error || `the gateway answered ${answer.status}`), { answered: true });
  }
  return answer;
}

const json = async (path) => (await ask(path, { headers: { accept: 'application/json' } })).json();

// === units

const number = (n) => n.toLocaleString('en');
function rateText(rate) {
  if (rate === undefined) return '–';
  return `${rate === 0 ? '0' : rate < 10 ? rate.toFixed(1) : number(Math.round(rate))}/s`;
}
function secondsText(s) {
  if (s === undefined) return '–';
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  return s < 10 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
}
function ageText(s) {
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}
function bytesText(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return `${unit === 'B' || n >= 10 ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

// === rates and percentiles, from the differences of what counters said

const looks = new Map();

/** What changed at `key` over the last seconds; nothing before the second look. Time is the gateway's. */
function change(key, at, totals) {
  let all = looks.get(key) || [];
  const last = all[all.length - 1];
  // A restart, or another object of the same name.
  if (last && (at < last.at || totals.requests < last.totals.requests)) all = [];
  if (!all.length || at > all[all.length - 1].at) all.push({ at, totals });
  while (all.length > 2 && all[1].at <= at - WINDOW) all.shift();
  looks.delete(key);
  looks.set(key, all);
  const [first] = all, seconds = at - first.at;
  if (all.length < 2) return {};
  const buckets = totals.buckets.map((count, i) => count - (first.totals.buckets[i] || 0));
  return {
    rate: (totals.requests - first.totals.requests) / seconds,
    errors: (totals.serverErrors - first.totals.serverErrors) / seconds,
    buckets,
  };
}

function forget() {
  // Rows of pages that were turned long ago.
  for (const key of looks.keys()) { if (looks.size <= 4000) break; looks.delete(key); }
}

/** As `histogram_quantile` does it: linear inside the bucket. */
function quantileText(q, buckets, bounds) {
  const total = (buckets || []).reduce((sum, n) => sum + n, 0);
  if (!total) return '–';
  let below = 0;
  for (let i = 0; i < bounds.length; i++) {
    if (below + buckets[i] >= q * total) {
      const from = i ? bounds[i - 1] : 0;
      return secondsText(from + (bounds[i] - from) * (q * total - below) / buckets[i]);
    }
    below += buckets[i];
  }
  return `> ${secondsText(bounds[bounds.length - 1])}`;
}

// === tables

/** Brings the rows of a table to what `items` are; rows of the same key stay the same nodes. */
function rows(body, items, keyOf, columns, fill) {
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  let at = body.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let row = known.get(key);
    if (row) known.delete(key);
    else {
      row = make('tr');
      row.dataset.key = key;
      for (const [label, kind] of columns) {
        const cell = make('td', { className: kind || '' }, make('div'));
        cell.dataset.label = label;
        row.append(cell);
      }
    }
    if (row === at) at = at.nextElementSibling; else body.insertBefore(row, at);
    fill([...row.cells].map((cell) => cell.firstElementChild), item);
  }
  for (const row of known.values()) row.remove();
}

/** Replaces what is in a cell if it is not the same already. `parts` are [tag, class, text]. */
function lines(cell, parts) {
  const now = JSON.stringify(parts);
  if (cell.dataset.now === now) return;
  cell.dataset.now = now;
  cell.replaceChildren(...parts.map(([tag, className, text]) => make(tag, { className, textContent: text })));
}

/** A list that is asked for in parts: search, filter, pages. */
function list(name, filters, show) {
  const self = { offset: 0, next: undefined, busy: false, again: false };
  const query = () => {
    const asked = new URLSearchParams({ offset: self.offset, limit: LIMIT, q: $(`${name}-q`).value });
    for (const filter of filters) if ($(`${name}-${filter}`).value) asked.set(filter, $(`${name}-${filter}`).value);
    return asked;
  };
  const before = make('button', { type: 'button', textContent: 'Previous', onclick: () => turn(self.offset - LIMIT) });
  const after = make('button', { type: 'button', textContent: 'Next', onclick: () => turn(self.next) });
  const where = make('span', { className: 'quiet' });
  $(`${name}-pager`).append(where, before, after);
  function turn(to) {
    self.offset = Math.max(0, to || 0);
    now();
  }
  let typing;
  $(`${name}-form`).addEventListener('submit', (event) => { event.preventDefault(); turn(0); });
  $(`${name}-q`).addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => turn(0), 200); });
  for (const filter of filters) $(`${name}-${filter}`).addEventListener('change', () => turn(0));
  self.load = async () => {
    const asked = query().toString(), told = await json(`/${name}?${asked}`);
    if (asked !== query().toString()) return; // Something else was typed meanwhile.
    // What was on this page is gone: the last page that there is.
    if (self.offset && self.offset >= told.found) { self.offset = Math.max(0, Math.floor((told.found - 1) / LIMIT) * LIMIT); return self.load(); }
    self.next = told.next;
    show(told);
    const shown = told.rows.length;
    set(where, shown ? `${number(told.offset + 1)} to ${number(told.offset + shown)} of ${number(told.found)}` : '');
    before.disabled = self.offset === 0;
    after.disabled = told.next === undefined;
    $(`${name}-pager`).hidden = self.offset === 0 && told.next === undefined;
    const filtered = $(`${name}-q`).value || filters.some((f) => !['', 'all'].includes($(`${name}-${f}`).value));
    set($(`${name}-empty`), filtered ? 'Nothing matches what is looked for.' : EMPTY[name]);
    $(`${name}-empty`).hidden = shown > 0;
    $(`${name}-table`).hidden = shown === 0;
  };
  async function now() {
    if (self.busy) { self.again = true; return; }
    self.busy = true;
    try { do { self.again = false; await self.load(); } while (self.again); } catch (error) { failed(error); } finally { self.busy = false; }
  }
  return self;
}

const EMPTY = {
  objects: 'The gateway knows no Selector and no Route of its class. Apply some, or look at the sources above.',
  clusters: 'No rule names a backend.',
};

// === the parts of the page

const TONES = { Starting: 'warn', Serving: 'good', LameDuck: 'warn', Draining: 'warn', Aborting: 'bad', Stopped: 'bad' };
let phase;

function showState(state) {
  phase = state.phase;
  set($('phase'), state.phase, TONES[state.phase] || '');
  document.title = `${state.phase} – Lockgate`;
  set($('about'), `class ${state.className}, version ${state.version}, up ${ageText(Math.floor(state.uptimeSeconds))}`);
  set($('ready'), state.ready ? 'ready' : 'not ready', state.ready ? 'good' : 'bad');
  const waits = [...state.waitsFor.map((line) => line.replace(/^pending: /, 'waits for ')), ...(state.live ? [] : ['a worker does not move'])];
  set($('waits'), waits.length ? `Not ready: ${waits.join(', ')}.` : '', waits.length ? 'warn' : '');
  const now = change('', state.uptimeSeconds, state.traffic);
  set($('rate'), rateText(now.rate));
  set($('p99'), quantileText(0.99, now.buckets, state.bounds));
  set($('errors'), rateText(now.errors), now.errors > 0 ? 'bad' : '');
  set($('flight'), number(state.inFlight));
  set($('generation'), state.generation ? `generation ${state.generation}` : 'none yet');
  rows($('sources').tBodies[0], state.sources, (s) => s.name, [['Source'], ['Listed'], ['Last heard of', 'number'], ['Errors']], ([name, listed, heard, errors], s) => {
    set(name, s.name);
    set(listed, s.synced ? 'yes' : 'not yet', s.synced ? '' : 'warn');
    set(heard, `${ageText(s.stalenessSeconds)} ago`, s.stalenessSeconds > 90 ? 'bad' : '');
    const told = Object.entries(s.errors).map(([reason, count]) => `${reason} ${number(count)}`).join(', ');
    set(errors, told || 'none', told ? 'warn' : '');
  });
  $('sources').hidden = !state.sources.length;
  $('sources-empty').hidden = state.sources.length > 0;
  const d = state.drain;
  set($('drain-note'), `A drain serves on for ${d.delaySeconds} to ${d.maxDelaySeconds} s, then waits up to ${d.timeoutSeconds} s for what is in flight; ${d.longestSeconds} s in all. Cut so far: ${number(state.forced)}. To begin one: lockgate drain.`);
  set($('drain-count'), `${number(state.inFlight)} in flight`);
  const listeners = $('explain-listener'), names = state.listeners.map((l) => l.name);
  if (listeners.dataset.names !== names.join('\n')) {
    listeners.dataset.names = names.join('\n');
    listeners.replaceChildren(listeners.options[0], ...names.map((name) => make('option', { textContent: name, value: name })));
  }
}

function verdict(row) {
  const parts = [];
  const line = (finding, name) => {
    if (!finding.ok) parts.push(['span', 'badge bad', `${name}: ${finding.reason}`]);
    if (finding.message) parts.push(['small', finding.ok ? 'warn' : 'bad', finding.message]);
  };
  line(row.accepted, 'Not accepted');
  line(row.resolvedRefs, 'Refs not resolved');
  if (row.accepted.ok && !row.programmed) parts.push(['span', 'badge warn', 'Not in the table']);
  if (row.shadowed) {
    const whole = row.shadowed.extent === 'Whole';
    parts.push(['span', `badge${whole ? ' warn' : ''}`, whole ? 'Never wins' : 'Partly taken'], ['small', whole ? 'warn' : '', row.shadowed.message]);
  }
  if (row.accepted.ok && row.programmed) parts.unshift(['span', `badge ${row.resolvedRefs.ok ? 'good' : 'warn'}`, 'Programmed']);
  return parts;
}

const objects = list('objects', ['kind', 'state'], (told) => {
  set($('objects-count'), `${number(told.selectors)} Selectors, ${number(told.routes)} Routes, ${number(told.troubled)} with trouble`);
  const columns = [['Object'], ['Hosts'], ['Verdict'], ['Rate', 'number'], ['p99', 'number'], ['5xx', 'number']];
  rows($('objects-table').tBodies[0], told.rows, (r) => [r.kind, r.object, r.selector].join(' '), columns, (cells, r) => {
    const [object, hosts, said, rate, p99, errors] = cells;
    const attached = r.attachedRoutes === undefined ? (r.selector ? `at Selector ${r.selector}` : 'at no Selector') : `${number(r.attachedRoutes)} Routes attached`;
    lines(object, [['span', '', `${r.kind} ${r.object}`], ['small', '', attached]]);
    const few = r.hostnames.slice(0, 4);
    lines(hosts, [['span', '', few.join(', ') || '–'], ...(r.hostnames.length > 4 ? [['small', '', `and ${r.hostnames.length - 4} more`]] : [])]);
    lines(said, verdict(r));
    const now = change(`o ${r.kind} ${r.object} ${r.selector}`, told.uptimeSeconds, r.traffic);
    set(rate, rateText(now.rate));
    set(p99, quantileText(0.99, now.buckets, told.bounds));
    set(errors, rateText(now.errors), now.errors > 0 ? 'bad' : '');
  });
});

const STATES = { ready: ['good', 'ready'], setAside: ['bad', 'set aside'], draining: ['warn', 'draining'] };

const clusters = list('clusters', ['state'], (told) => {
  set($('clusters-count'), `${number(told.total)} Clusters, ${number(told.troubled)} with trouble`);
  const columns = [['Cluster'], ['Endpoints'], ['Rate', 'number'], ['p99', 'number'], ['Connections', 'number']];
  rows($('clusters-table').tBodies[0], told.rows, (r) => r.id, columns, ([name, endpoints, rate, p99, connections], r) => {
    const notes = [];
    if (r.id !== r.cluster) notes.push(['small', '', r.id.slice(r.cluster.length).trim()]);
    if (r.maxRequests) notes.push(['small', '', `at most ${number(r.maxRequests)} requests`]);
    lines(name, [['span', '', r.cluster], ...notes]);
    const parts = r.reason ? [['span', 'badge bad', 'no endpoint'], ['small', 'bad', r.reason]] : [];
    for (const e of r.endpoints) {
      const [tone, word] = STATES[e.state] || ['', e.state];
      parts.push(['code', '', e.address], ['span', tone, ` ${word}`]);
      parts.push(['small', tone, [e.reason, e.waiting ? `${number(e.waiting)} requests wait for a connection` : ''].filter(Boolean).join('; ')]);
    }
    if (r.moreEndpoints) parts.push(['small', '', `and ${number(r.moreEndpoints)} more endpoints`]);
    lines(endpoints, parts);
    const requests = r.buckets.reduce((sum, n) => sum + n, 0);
    const now = change(`c ${r.id}`, told.uptimeSeconds, { requests, serverErrors: 0, buckets: r.buckets });
    set(rate, rateText(now.rate));
    set(p99, quantileText(0.99, now.buckets, told.bounds));
    const failed = r.connectFailures ? [['small', 'bad', `${number(r.connectFailures)} failed`]] : [];
    const again = r.retries ? [['small', '', `${number(r.retries)} retries`]] : [];
    lines(connections, [['span', '', number(r.active + r.idle)], ...failed, ...again]);
  });
});

async function showLedger() {
  // Workers are asked for it: only while somebody looks.
  const draining = ['LameDuck', 'Draining', 'Aborting'].includes(phase);
  if (draining && !$('drain').dataset.opened) { $('drain').open = true; $('drain').dataset.opened = 'yes'; }
  if (!draining) delete $('drain').dataset.opened;
  if (!$('drain').open) return;
  const told = await json('/drain');
  set($('drain-count'), `${number(told.inFlight)} in flight`);
  const keyed = told.holders.map((h, i) => ({ ...h, key: String(i) }));
  rows($('drain-table').tBodies[0], keyed, (h) => h.key, [['Route'], ['Protocol'], ['Peer'], ['Age', 'number'], ['Received', 'number'], ['Sent', 'number']], ([route, protocol, peer, age, received, sent], h) => {
    set(route, h.route);
    set(protocol, h.protocol);
    set(peer, h.peer);
    set(age, ageText(h.ageSeconds));
    set(received, bytesText(h.received));
    set(sent, bytesText(h.sent));
  });
  $('drain-table').hidden = !told.holders.length;
  $('drain-empty').hidden = told.holders.length > 0;
}

$('explain-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const answer = $('explain-answer');
  const headers = $('explain-headers').value.split('\n').map((line) => line.trim()).filter(Boolean);
  const question = { method: $('explain-method').value.trim(), url: $('explain-url').value.trim(), headers };
  if ($('explain-ip').value.trim()) question.clientIp = $('explain-ip').value.trim();
  if ($('explain-listener').value) question.listener = $('explain-listener').value;
  try {
    const told = await ask('/explain?o=text', { method: 'POST', body: JSON.stringify(question) });
    set(answer, await told.text());
    answer.classList.remove('bad');
  } catch (error) {
    set(answer, error.answered ? error.message : 'The gateway did not answer.');
    answer.classList.add('bad');
  }
  answer.hidden = false;
});
$('drain').addEventListener('toggle', () => showLedger().catch(failed));
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    $('objects-q').focus();
  }
});

// === asking, again and again

let heard, lost = 0, timer, running = false;

function failed(error) {
  lost++;
  document.documentElement.classList.add('stale');
  const since = heard ? ` What is below is ${ageText(Math.round((Date.now() - heard) / 1000))} old.` : '';
  const what = error.answered ? `The gateway answered with an error: ${error.message}.` : 'The gateway does not answer: it is gone, or the port-forward is.';
  set($('gone'), `${what}${since} Trying again every ${Math.min(EVERY * 2 ** Math.min(lost, 3), SLOW) / 1000} s.`);
  $('gone').hidden = false;
  set($('link'), 'not connected', 'bad');
}

async function look() {
  if (running) return;
  running = true;
  clearTimeout(timer);
  try {
    showState(await json('/state'));
    await Promise.all([objects.load(), clusters.load(), showLedger()]);
    heard = Date.now();
    lost = 0;
    forget();
    document.documentElement.classList.remove('stale');
    $('gone').hidden = true;
    set($('link'), `live, as of ${new Date(heard).toLocaleTimeString('en-GB')}`, '');
  } catch (error) {
    failed(error);
  }
  running = false;
  // A page that nobody sees asks nothing.
  if (!document.hidden) timer = setTimeout(look, lost ? Math.min(EVERY * 2 ** Math.min(lost, 3), SLOW) : EVERY);
}
document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
look();
