{{/* Names of the webhook, and where its certificate comes from. */}}
{{- define "drawbar.webhook" -}}
{{ include "drawbar.prefix" . }}-webhook{{ include "drawbar.suffix" . }}
{{- end -}}
{{/* A Service's name has no dots. */}}
{{- define "drawbar.webhookService" -}}
{{ include "drawbar.webhook" . | replace "." "-" | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- define "drawbar.webhookHost" -}}
{{ include "drawbar.webhookService" . }}.{{ .Release.Namespace }}.svc
{{- end -}}
{{- define "drawbar.webhookConfig" -}}
{{- $decided := dict "driverName" .Values.driverName "listen" (dict "port" 9443) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.webhook.config) $decided) -}}
{{- end -}}
{{- define "drawbar.webhookSecret" -}}
{{- if eq .Values.webhook.certificate.from "secret" -}}
{{- required "webhook.certificate.secretName is empty: name the Secret of the type kubernetes.io/tls that holds the webhook's certificate" .Values.webhook.certificate.secretName -}}
{{- else -}}
{{ include "drawbar.webhook" . }}-tls
{{- end -}}
{{- end -}}

{{/* One of the webhooks. Call with a dict of root, name, rules, config and bundle. */}}
{{- define "drawbar.webhookEntry" -}}
- name: {{ .name }}.parameters.{{ .root.Values.driverName }}
  clientConfig:
    service:
      name: {{ include "drawbar.webhookService" .root }}
      namespace: {{ .root.Release.Namespace }}
      path: /validate
      port: 443
    {{- with .bundle }}
    caBundle: {{ . }}
    {{- end }}
  rules:
    - apiGroups: [resource.k8s.io]
      apiVersions: [v1, v1beta2, v1beta1, v1alpha3]
      operations: {{ toJson .operations }}
      resources: {{ toJson .resources }}
      scope: "*"
  # Only what has parameters for this driver is asked about at all.
  matchConditions:
    - name: parameters
      expression: {{ printf "object.?%s.orValue([]).exists(c, c.?opaque.?driver.orValue('') == '%s')" (.config | replace "." ".?") .root.Values.driverName | quote }}
  failurePolicy: {{ .root.Values.webhook.failurePolicy }}
  matchPolicy: Equivalent
  sideEffects: None
  timeoutSeconds: 5
  admissionReviewVersions: [v1]
{{- end -}}
