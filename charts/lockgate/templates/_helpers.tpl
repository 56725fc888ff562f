{{- define "lockgate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 50 characters leave room for what names of objects end in. */}}
{{- define "lockgate.fullname" -}}
{{- $name := include "lockgate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lockgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lockgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockgate.labels" -}}
{{ include "lockgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations. Takes {root, labels, annotations}. */}}
{{- define "lockgate.metadata" -}}
labels:
  {{- include "lockgate.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lockgate.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "lockgate.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "lockgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ printf "%s@%s" .repository .digest }}{{- else -}}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The milliseconds of a duration, read as the gateway reads it. Takes {field, value}. */}}
{{- define "lockgate.milliseconds" -}}
{{- $text := toString .value -}}
{{- if not (regexMatch "^([0-9]{1,5}(h|m|s|ms)){1,4}$" $text) -}}
{{- fail (printf "config.%s: %q is not a duration such as 500ms, 2s or 1h30m" .field $text) -}}
{{- end -}}
{{- $total := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" $text -1 -}}
{{- $factor := get (dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1) (regexFind "[a-z]+$" .) -}}
{{- $total = add $total (mul (regexFind "^[0-9]+" . | trimPrefix "0000" | trimPrefix "000" | trimPrefix "00" | trimPrefix "0" | default "0" | int64) $factor) -}}
{{- end -}}
{{- $total -}}
{{- end -}}

{{/*
terminationGracePeriodSeconds. The arithmetic is that of the gateway's own check at its start (src/lifecycle/settings.rs): a drain takes
maxDelay, or nothing with a delay of 0, then timeout, and 5 s are for cutting what is left and exiting.
*/}}
{{- define "lockgate.gracePeriod" -}}
{{- $drain := .Values.config.drain | default dict -}}
{{- $given := dict -}}
{{- range $field, $default := dict "delay" "5s" "maxDelay" "20s" "timeout" "30s" "readinessDelay" "0s" -}}
{{- $value := get $drain $field | default $default -}}
{{- $_ := set $given $field (include "lockgate.milliseconds" (dict "field" (printf "drain.%s" $field) "value" $value) | int64) -}}
{{- end -}}
{{- if and (gt $given.delay 0) (lt $given.maxDelay $given.delay) -}}
{{- fail "config.drain.maxDelay is below config.drain.delay: raise maxDelay or lower delay" -}}
{{- end -}}
{{- if gt $given.readinessDelay $given.delay -}}
{{- fail "config.drain.readinessDelay is above config.drain.delay: new requests would be refused while the gateway shows itself ready; lower readinessDelay or raise delay" -}}
{{- end -}}
{{- $needed := div (add (ternary 0 $given.maxDelay (eq $given.delay 0)) $given.timeout 5000 999) 1000 -}}
{{- $seconds := $needed -}}
{{- $name := "" -}}
{{- if not (kindIs "invalid" $drain.gracePeriod) -}}
{{- $name = "config.drain.gracePeriod" -}}
{{- $seconds = div (include "lockgate.milliseconds" (dict "field" "drain.gracePeriod" "value" $drain.gracePeriod) | int64) 1000 -}}
{{- end -}}
{{- if not (kindIs "invalid" .Values.terminationGracePeriodSeconds) -}}
{{- if and $name (ne (int64 .Values.terminationGracePeriodSeconds) $seconds) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d and config.drain.gracePeriod says %ds: set one of them" (int64 .Values.terminationGracePeriodSeconds) $seconds) -}}
{{- end -}}
{{- $name = "terminationGracePeriodSeconds" -}}
{{- $seconds = int64 .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- if lt $seconds $needed -}}
{{- fail (printf "%s is %ds, and a drain may take %ds: config.drain.maxDelay (none with a delay of 0s) + config.drain.timeout + 5s to exit. Leave it unset, raise it, or lower maxDelay or timeout" $name $seconds $needed) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/*
lockgate.yaml: config, with the grace period that the pod gets, so that the gateway checks it again with flags and variables, and with the
Service that is its own.
*/}}
{{- define "lockgate.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $drain := get $config "drain" | default dict -}}
{{- $_ := set $drain "gracePeriod" (printf "%ss" (include "lockgate.gracePeriod" .)) -}}
{{- $_ := set $config "drain" $drain -}}
{{- with include "lockgate.ownService" . -}}
{{- $_ := set $config "kubernetes" (merge (dict "service" .) (get $config "kubernetes" | default dict)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port of an address such as [::]:8080. Takes {field, address}. */}}
{{- define "lockgate.port" -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" (toString .address)) -}}
{{- if or (not $port) (gt (int $port) 65535) (lt (int $port) 1) -}}
{{- fail (printf "%s: %q is not an address:port" .field (toString .address)) -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/*
The listeners as JSON: {listeners: [{name, port, plain, http3}]}: plain where a client needs neither TLS nor a PROXY protocol header, http3 the
UDP port that clients use for HTTP/3, 0 where there is none.
*/}}
{{- define "lockgate.listeners" -}}
{{- $listeners := list -}}
{{- $names := list -}}
{{- range $index, $given := .Values.config.listeners | default (list "http=[::]:8080" "https=[::]:8443+tls") -}}
{{- $field := printf "config.listeners[%d]" $index -}}
{{- $name := "" -}}{{- $address := "" -}}{{- $plain := true -}}{{- $http3 := 0 -}}
{{- if kindIs "string" $given -}}
{{- if not (contains "=" $given) -}}{{- fail (printf "%s: %q is not of the form name=address:port" $field $given) -}}{{- end -}}
{{- $name = regexFind "^[^=]+" $given -}}
{{- $address = regexReplaceAll "^[^=]*=([^+]*).*$" $given "${1}" -}}
{{- $plain = not (regexMatch "\\+(tls|proxy)(\\+|$)" $given) -}}
{{- with regexFind "\\+h3(:[0-9]+)?(\\+|$)" $given -}}{{- $http3 = regexFind "[0-9]+$" (trimSuffix "+" . | trimPrefix "+h3") | default "443" | int -}}{{- end -}}
{{- else -}}
{{- $name = $given.name -}}
{{- $address = $given.address -}}
{{- $plain = not (or $given.tls $given.proxyProtocol) -}}
{{- $http3 = $given.http3 | default 0 | int -}}
{{- end -}}
{{- if has $name $names -}}{{- fail (printf "%s: the name %q is there twice" $field $name) -}}{{- end -}}
{{- $names = append $names $name -}}
{{- $listeners = append $listeners (dict "name" $name "port" (include "lockgate.port" (dict "field" $field "address" $address) | int) "plain" $plain "http3" $http3) -}}
{{- end -}}
{{- dict "listeners" $listeners | toJson -}}
{{- end -}}

{{/* The Service's ports as JSON: {ports: [{name, port, targetPort, plain, nodePort, appProtocol, http3, http3NodePort}]}. */}}
{{- define "lockgate.servicePorts" -}}
{{- $listeners := (include "lockgate.listeners" . | fromJson).listeners -}}
{{- $wanted := .Values.service.ports -}}
{{- if not $wanted -}}
{{- range $listeners -}}{{- $wanted = append $wanted (dict "listener" .name) -}}{{- end -}}
{{- end -}}
{{- $ports := list -}}
{{- range $index, $want := $wanted -}}
{{- $found := dict -}}
{{- range $listeners -}}{{- if eq .name $want.listener -}}{{- $found = . -}}{{- end -}}{{- end -}}
{{- if not $found -}}{{- fail (printf "service.ports[%d].listener: %q is none of config.listeners" $index $want.listener) -}}{{- end -}}
{{- $usual := get (dict "http" 80 "https" 443) $found.name | default $found.port -}}
{{- $port := dict "name" $found.name "port" ($want.port | default $usual | int) "targetPort" (int $found.port) "plain" $found.plain "http3" (int $found.http3) -}}
{{- with $want.nodePort -}}{{- $_ := set $port "nodePort" (int .) -}}{{- end -}}
{{- with $want.http3NodePort -}}
{{- if not $found.http3 -}}{{- fail (printf "service.ports[%d].http3NodePort: the listener %q has no http3 (+h3)" $index $found.name) -}}{{- end -}}
{{- $_ := set $port "http3NodePort" (int .) -}}
{{- end -}}
{{- with $want.appProtocol -}}{{- $_ := set $port "appProtocol" . -}}{{- end -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- dict "ports" $ports | toJson -}}
{{- end -}}

{{- define "lockgate.metricsPort" -}}
{{- $admin := .Values.config.admin | default dict -}}
{{- include "lockgate.port" (dict "field" "config.admin.address" "address" ($admin.address | default "[::]:8081")) -}}
{{- end -}}

{{/* The namespaces that are watched, as JSON: {namespaces: […]}; empty for all. */}}
{{- define "lockgate.namespaces" -}}
{{- dict "namespaces" ((.Values.config.kubernetes | default dict).namespaces | default list | uniq) | toJson -}}
{{- end -}}

{{/* Whether status is written: not empty if it is. */}}
{{- define "lockgate.writesStatus" -}}
{{- if ne (get (.Values.config.kubernetes | default dict) "writeStatus" | toString) "false" -}}true{{- end -}}
{{- end -}}

{{/* Whether Events are written: not empty if they are. */}}
{{- define "lockgate.writesEvents" -}}
{{- if and (include "lockgate.writesStatus" .) (ne (get (.Values.config.kubernetes | default dict) "writeEvents" | toString) "false") -}}true{{- end -}}
{{- end -}}

{{/* The Service whose addresses go into the status of Selectors, as namespace/name; empty for none. */}}
{{- define "lockgate.ownService" -}}
{{- if and (include "lockgate.usesCluster" .) (include "lockgate.writesStatus" .) -}}
{{- $set := get (.Values.config.kubernetes | default dict) "service" -}}
{{- if kindIs "string" $set | and (hasKey (.Values.config.kubernetes | default dict) "service") -}}
{{- if $set -}}{{- contains "/" $set | ternary $set (printf "%s/%s" .Release.Namespace $set) -}}{{- end -}}
{{- else -}}
{{- printf "%s/%s" .Release.Namespace (include "lockgate.fullname" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether the gateway speaks with the API server at all: not with objects from files. */}}
{{- define "lockgate.usesCluster" -}}
{{- if not .Values.config.manifests -}}true{{- end -}}
{{- end -}}
