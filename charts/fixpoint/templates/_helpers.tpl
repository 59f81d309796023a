{{- define "fixpoint.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "fixpoint.manager" -}}
{{ include "fixpoint.fullname" . }}-controller-manager
{{- end }}

{{- define "fixpoint.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "fixpoint.manager" . }}
{{- else -}}
{{ fail "serviceAccount.name is empty: set it to an existing ServiceAccount, or set serviceAccount.create" }}
{{- end -}}
{{- end }}

{{- define "fixpoint.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "fixpoint.labels" -}}
app.kubernetes.io/name: fixpoint
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fixpoint.selector" -}}
control-plane: controller-manager
{{- end }}

{{- define "fixpoint.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "fixpoint.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The namespaces of the Roles of a namespaced manager, as a JSON list. */}}
{{- define "fixpoint.namespaces" -}}
{{- .Values.namespaces | default (list .Release.Namespace) | toJson -}}
{{- end }}
