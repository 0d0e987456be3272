{{/*
Names and labels. The default driver has the plain names, every other its own name in them, as the daemons expect of
the Lease (docs/controller.md, "Several Drawbars in one cluster").
*/}}
{{- define "drawbar.suffix" -}}
{{- if ne .Values.driverName "drawbar.dev" }}-{{ .Values.driverName }}{{ end -}}
{{- end -}}
{{- define "drawbar.prefix" -}}
{{ .Values.fullnameOverride | default "drawbar" }}
{{- end -}}
{{/* The daemon names its Lease itself, whatever the other names are. */}}
{{- define "drawbar.lease" -}}
drawbar-controller{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.name" -}}
{{ .Values.nameOverride | default "drawbar" }}
{{- end -}}
{{- define "drawbar.controller" -}}
{{ include "drawbar.prefix" . }}-controller{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.node" -}}
{{ include "drawbar.prefix" . }}-node{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.healthMonitor" -}}
{{ include "drawbar.prefix" . }}-health-monitor{{ include "drawbar.suffix" . }}
{{- end -}}
{{/* A Service's name has no dots. */}}
{{- define "drawbar.healthMonitorService" -}}
{{ include "drawbar.healthMonitor" . | replace "." "-" | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- define "drawbar.ui" -}}
{{ include "drawbar.prefix" . }}-ui{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.operator" -}}
{{ include "drawbar.prefix" . }}-operator{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.technician" -}}
{{ include "drawbar.prefix" . }}-technician{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.viewer" -}}
{{ include "drawbar.prefix" . }}-viewer{{ include "drawbar.suffix" . }}
{{- end -}}
{{- define "drawbar.credentials" -}}
{{ include "drawbar.prefix" . }}-fabric-credentials{{ include "drawbar.suffix" . }}
{{- end -}}

{{- define "drawbar.selector" -}}
app.kubernetes.io/name: {{ include "drawbar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "drawbar.labels" -}}
{{ include "drawbar.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The users that the two service accounts are. */}}
{{- define "drawbar.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "drawbar.controller" . }}
{{- end -}}
{{- define "drawbar.nodeUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "drawbar.node" . }}
{{- end -}}

{{/* The version of resource.k8s.io whose classes are made: the cluster's own. versions.yaml refuses clusters without it. */}}
{{- define "drawbar.resourceVersion" -}}
{{- if not .Values.classic.enabled }}v1
{{- else if semverCompare "<1.31.0-0" .Capabilities.KubeVersion.Version }}v1alpha2
{{- else }}v1alpha3
{{- end -}}
{{- end -}}

{{/* What is wrong with the values and cannot be said by their schema. */}}
{{- define "drawbar.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository is empty: name the registry and repository that hold your image of Drawbar, such as registry.example.com/drawbar" $image.repository -}}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}
{{- else }}{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The settings files of the daemons: what the chart decides wins over what the values say. */}}
{{- define "drawbar.controllerConfig" -}}
{{- $daemons := printf "app.kubernetes.io/name=%s,app.kubernetes.io/instance=%s,app.kubernetes.io/component=node" (include "drawbar.name" .) .Release.Name -}}
{{- $decided := dict "driverName" .Values.driverName "leaseNamespace" .Release.Namespace "nodeDaemonSelector" $daemons -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.controller.config) $decided) -}}
{{- end -}}
{{- define "drawbar.nodeConfig" -}}
{{- $decided := dict "driverName" .Values.driverName "kubeletDir" .Values.node.kubeletDir "cdiDir" .Values.node.cdiDir -}}
{{- if .Values.simulation.enabled -}}
{{- $_ := merge $decided (dict "sysfs" "/run/simulation/sys" "uevents" "unix:/run/simulation/uevents") -}}
{{- end -}}
{{- $config := mergeOverwrite (deepCopy .Values.node.config) $decided -}}
{{- with include "drawbar.bitstreams" . -}}
{{- $config = mergeOverwrite $config (dict "initialise" (dict "bitstreams" .)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Where the node daemon has the bitstreams of an image; empty where there is no image. */}}
{{- define "drawbar.bitstreams" -}}
{{- if .Values.node.bitstreams.image.reference -}}
{{- $path := dig "initialise" "bitstreams" "/srv/drawbar/bitstreams" .Values.node.config -}}
{{- if or (eq $path "/etc/drawbar") (hasPrefix "/etc/drawbar/" $path) -}}
{{- fail (printf "node.config.initialise.bitstreams is %s, below the daemon's own settings, where no image can be mounted: name a directory elsewhere, or leave it out" $path) -}}
{{- end -}}
{{- if .Values.classic.enabled -}}
{{- fail "node.bitstreams.image: with classic allocation no bitstreams are loaded: leave it out" -}}
{{- end -}}
{{- $path -}}
{{- end -}}
{{- end -}}
{{- define "drawbar.healthMonitorConfig" -}}
{{- $own := .Values.healthMonitor -}}
{{- $decided := dict "driverName" .Values.driverName "listen" (dict "port" 9444) "http" (dict "address" "127.0.0.1:9181") -}}
{{- if $own.tokenSecretName }}{{ $_ := set $decided "tokenFile" "/run/drawbar/token/token" }}{{ end -}}
{{- if $own.clientAuthority }}{{ $_ := set $decided "tls" (dict "clientAuthority" "/run/drawbar/tls/ca.crt") }}{{ end -}}
{{- if not (or $own.tokenSecretName $own.clientAuthority) }}
{{- fail "healthMonitor.enabled: anyone could send alerts: name the Secret with the key token in healthMonitor.tokenSecretName, or set healthMonitor.clientAuthority" }}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy $own.config) $decided) -}}
{{- end -}}

{{/*
The token of a pod's account, for the one container that speaks as that account, and for pretended hardware: no other container of the
pod has it. It is what the kubelet would mount into all of them.
*/}}
{{- define "drawbar.tokenMount" -}}
- {name: api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}
{{- define "drawbar.tokenVolume" -}}
- name: api-access
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}

{{/* A container beside the controller, with a directory for its sockets that no other sidecar has. Call with the values of the sidecar. */}}
{{- define "drawbar.sidecar" -}}
{{- $mounts := .volumeMounts | default list }}
{{- range $mounts }}
{{- if has .name (list "adapters" "api-access" "config") }}
{{- fail (printf "controller.sidecars: %s mounts the volume %s: take that out; /run/drawbar/%s is mounted for it, and no sidecar has the controller's token" $.name .name $.name) }}
{{- end }}
{{- end }}
{{- $own := dict "name" "adapters" "mountPath" (printf "/run/drawbar/%s" .name) "subPath" .name }}
- {{ toYaml (merge (dict "volumeMounts" (append $mounts $own)) .) | nindent 2 | trim }}
{{- end -}}

{{- define "drawbar.proxyName" -}}
{{ include "drawbar.prefix" . }}-metrics-proxy{{ include "drawbar.suffix" . }}
{{- end -}}
{{/* The volume with the proxy's own token; it waits for the token to be there. */}}
{{- define "drawbar.proxyVolume" -}}
- name: metrics-proxy
  secret:
    secretName: {{ include "drawbar.proxyName" . }}
    items: [{key: token, path: token}, {key: ca.crt, path: ca.crt}, {key: namespace, path: namespace}]
{{- end -}}

{{/* The proxy that lets Prometheus in. Call with a dict of root and upstream. */}}
{{- define "drawbar.proxy" -}}
- name: metrics
  image: {{ include "drawbar.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [drawbar-metrics-proxy]
  args:
    - --listen=:8443
    - --upstream=http://{{ .upstream }}/metrics
  env:
    - name: PYTHONDONTWRITEBYTECODE
      value: "1"
  ports:
    - {name: metrics, containerPort: 8443, protocol: TCP}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  resources: {{- toYaml .root.Values.metrics.proxy.resources | nindent 4 }}
  volumeMounts:
    - {name: metrics-proxy, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}

{{/* The affinity of the node daemon's pods: what is set, and on nodes that have one of the host labels. */}}
{{- define "drawbar.nodeAffinity" }}
{{- $affinity := deepCopy .affinity }}
{{- if and .hostLabels (not .nodeSelector) }}
{{- $node := $affinity.nodeAffinity | default dict }}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $terms := list }}
{{- range $term := $required.nodeSelectorTerms | default (list dict) }}
{{- range $label := $.hostLabels }}
{{- $wanted := dict "key" $label "operator" "In" "values" (list "true") }}
{{- $terms = append $terms (merge (dict "matchExpressions" (append ($term.matchExpressions | default list) $wanted)) $term) }}
{{- end }}
{{- end }}
{{- $node = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) $node }}
{{- $affinity = merge (dict "nodeAffinity" $node) $affinity }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}
{{/* Variables of a daemon that sends traces. */}}
{{- define "drawbar.tracing" -}}
{{- if .Values.tracing.enabled -}}
- name: OTEL_TRACES_EXPORTER
  value: otlp
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ required "tracing.enabled: set tracing.endpoint to the address of the collector, such as http://collector.observability.svc:4318" .Values.tracing.endpoint | quote }}
{{- end -}}
{{- end -}}
