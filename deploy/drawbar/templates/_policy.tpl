{{/* A ValidatingAdmissionPolicy for one user, and its binding. */}}
{{- define "drawbar.policy" }}
---
{{ wrap 116 .about | replace "\n" "\n# " | printf "# %s" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels: {{- include "drawbar.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: {{- toYaml .rules | nindent 6 }}
  matchConditions:
    - name: account
      expression: request.userInfo.username == '{{ .user }}'
  variables:
    {{- range $name, $expression := .variables }}
    - name: {{ $name }}
      expression: {{ $expression | quote }}
    {{- end }}
  validations:
    {{- range .validations }}
    - expression: {{ .expression | quote }}
      message: {{ .message | quote }}
      reason: Forbidden
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "drawbar.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{ end -}}
