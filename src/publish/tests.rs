use super::*;
use crate::ir::{ClusterId, EndpointSet, EndpointState, ObjectName, Origin};
use crate::telemetry::metrics::Buckets;

fn selector(name: &str, cluster: Option<u16>) -> Arc<ir::Selector> {
    let origin = Origin { created: 0, object: ObjectName::new("ns", name) };
    let rule = cluster.map(|port| {
        Arc::new(ir::Rule {
            origin: origin.clone(),
            index: 0,
            name: "0".into(),
            matches: Vec::new(),
            filters: Vec::new(),
            action: Action::Forward(vec![ir::Backend {
                weight: 1,
                target: BackendTarget::Cluster(id(port)),
                filters: Vec::new(),
            }]),
            timeouts: ir::Timeouts::default(),
            retry: None,
            load_balancing: ir::LoadBalancing::default(),
            limits: ir::Limits::default(),
            upstream: ir::UpstreamLimits::default(),
            upgrades: None,
        })
    });
    Arc::new(ir::Selector {
        origin,
        listeners: Vec::new(),
        hostnames: vec![ir::Hostname::Any],
        priority: 0,
        conditions: ir::ConditionSet::default(),
        rules: rule.into_iter().collect(),
        tls: None,
    })
}

fn id(port: u16) -> ClusterId {
    ClusterId::service(ObjectName::new("ns", "svc"), port, ir::Protocol::Http1)
}

fn fragment(selectors: Vec<Arc<ir::Selector>>, clusters: &[u16]) -> Arc<Fragment> {
    let cluster = |&port: &u16| Arc::new(ir::Cluster { id: id(port), target: ir::Target::Slices });
    Arc::new(Fragment {
        selectors,
        clusters: clusters.iter().map(cluster).collect(),
        verdicts: Vec::new(),
        default_certificate: None,
    })
}

fn endpoints(port: u16) -> Arc<EndpointSet> {
    let endpoint = ir::Endpoint { addr: ([10, 0, 0, 1], port).into(), state: EndpointState::Ready };
    Arc::new(EndpointSet { cluster: id(port), endpoints: vec![endpoint] })
}

struct Fixture {
    published: Arc<Published>,
    clusters: Arc<Clusters>,
    metrics: Arc<Metrics>,
    updates: mpsc::Sender<Update>,
    served: watch::Receiver<Option<Arc<Fragment>>>,
    examined: watch::Receiver<Option<Arc<ir::Served>>>,
}

impl Fixture {
    fn start() -> Self {
        let metrics = Metrics::new(1, Buckets::default());
        let names: Vec<Arc<str>> = vec!["http".into()];
        let published = Arc::new(Published::new(&names));
        let clusters = Arc::new(Clusters::new(Arc::clone(&metrics)));
        let tables = Publisher::new(
            names,
            TlsSettings::default(),
            Arc::clone(&published),
            Arc::clone(&clusters),
            Arc::clone(&metrics),
        );
        let (served, examined) = (tables.served(), tables.examined());
        let (updates, received) = mpsc::channel(16);
        tokio::spawn(tables.run(received));
        Self { published, clusters, metrics, updates, served, examined }
    }

    async fn table(&self, fragment: &Arc<Fragment>, endpoints: Vec<Arc<EndpointSet>>) {
        self.updates.send(Update::Table { fragment: Arc::clone(fragment), endpoints }).await.unwrap();
    }

    async fn until_served(&mut self, fragment: &Arc<Fragment>) -> Arc<Snapshot> {
        let same = |served: &Option<Arc<Fragment>>| served.as_ref().is_some_and(|f| Arc::ptr_eq(f, fragment));
        self.served.wait_for(same).await.unwrap();
        self.published.load()
    }
}

#[tokio::test]
async fn a_burst_of_changes_becomes_few_tables_and_the_last_one_wins() {
    let mut fixture = Fixture::start();
    let mut last = fragment(Vec::new(), &[]);
    for n in 0..50 {
        last = fragment(vec![selector(&format!("s{n}"), None)], &[]);
        fixture.table(&last, Vec::new()).await;
    }
    let snapshot = fixture.until_served(&last).await;
    assert_eq!(&*snapshot.table.selectors().next().unwrap().origin.object.name, "s49");
    assert!(snapshot.generation <= 10, "{}", snapshot.generation);
    assert_eq!(fixture.published.generation(), snapshot.generation);
}

#[tokio::test]
async fn clusters_have_their_endpoints_before_a_table_refers_to_them_and_go_after_it() {
    let mut fixture = Fixture::start();
    let first = fragment(vec![selector("a", Some(80))], &[80]);
    fixture.table(&first, vec![endpoints(80)]).await;
    let snapshot = fixture.until_served(&first).await;
    let (_, _, runtime) = snapshot.table.payloads().next().unwrap();
    let Target::Cluster(cluster) = &runtime.targets[0] else { panic!("no cluster") };
    assert_eq!(cluster.endpoints().usable.len(), 1);

    let second = fragment(vec![selector("b", Some(81))], &[81]);
    fixture.table(&second, vec![endpoints(81)]).await;
    fixture.until_served(&second).await;
    assert!(fixture.clusters.get(&id(80)).is_none());
    assert!(fixture.clusters.get(&id(81)).is_some());
}

#[tokio::test]
async fn endpoints_change_without_a_new_table() {
    let mut fixture = Fixture::start();
    let only = fragment(vec![selector("a", Some(80))], &[80]);
    fixture.table(&only, Vec::new()).await;
    let snapshot = fixture.until_served(&only).await;
    let update = Update::Endpoints { set: endpoints(80), observed: Instant::now() };
    fixture.updates.send(update).await.unwrap();
    let cluster = fixture.clusters.get(&id(80)).unwrap();
    while cluster.endpoints().usable.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.published.generation(), snapshot.generation);
    assert!(fixture.metrics.render().contains("lockgate_endpoint_update_lag_seconds_count 1"));
}

#[tokio::test]
async fn an_unchanged_selector_keeps_its_counters_and_its_compiled_form() {
    let mut fixture = Fixture::start();
    let kept = selector("a", Some(80));
    let first = fragment(vec![Arc::clone(&kept)], &[80]);
    fixture.table(&first, Vec::new()).await;
    let before = fixture.until_served(&first).await;
    let second = fragment(vec![Arc::clone(&kept), selector("b", None)], &[80]);
    fixture.table(&second, Vec::new()).await;
    let after = fixture.until_served(&second).await;
    let state = |snapshot: &Snapshot| Arc::clone(&snapshot.table.payloads().next().unwrap().2.state);
    assert!(Arc::ptr_eq(&state(&before), &state(&after)));

    // An equal Selector of another allocation is compiled again, and still counts on.
    let third = fragment(vec![selector("a", Some(80))], &[80]);
    fixture.table(&third, Vec::new()).await;
    let again = fixture.until_served(&third).await;
    assert!(Arc::ptr_eq(&state(&after), &state(&again)));
}

#[tokio::test]
async fn a_cluster_that_no_source_declared_answers_500() {
    let mut fixture = Fixture::start();
    let wrong = fragment(vec![selector("a", Some(80))], &[]);
    fixture.table(&wrong, Vec::new()).await;
    let snapshot = fixture.until_served(&wrong).await;
    let (_, _, runtime) = snapshot.table.payloads().next().unwrap();
    assert!(matches!(runtime.targets[0], Target::Invalid { .. }));
}

#[tokio::test]
async fn shadows_are_told_after_their_table_is_served_and_go_with_their_reason() {
    let mut fixture = Fixture::start();
    let hidden = fragment(vec![selector("a", None), selector("b", None)], &[]);
    fixture.table(&hidden, Vec::new()).await;
    let about = |fragment: &Arc<Fragment>| {
        let fragment = Arc::clone(fragment);
        move |served: &Option<Arc<ir::Served>>| served.as_ref().is_some_and(|s| Arc::ptr_eq(&s.fragment, &fragment))
    };
    let told = fixture.examined.wait_for(about(&hidden)).await.unwrap().clone().unwrap();
    assert!(fixture.published.generation() > 0);
    assert_eq!(told.shadowed.iter().map(|s| &*s.object.name).collect::<Vec<_>>(), ["b"]);
    let free = fragment(vec![selector("b", None)], &[]);
    fixture.table(&free, Vec::new()).await;
    let told = fixture.examined.wait_for(about(&free)).await.unwrap().clone().unwrap();
    assert_eq!(told.shadowed, []);
}
