{{/* Names of Services have at most 63 characters, and no dots, which Helm allows in the name of a release. The longest name
that follows from this one is that of the Service for the metrics. */}}
{{- define "fixpoint.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | replace "." "-" | trunc 36 | trimSuffix "-" -}}
{{- end }}

{{- define "fixpoint.manager" -}}
{{ include "fixpoint.fullname" . }}-controller-manager
{{- end }}

{{- define "fixpoint.console" -}}
{{ include "fixpoint.fullname" . }}-console
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
{{- else if .Values.image.tag -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Chart.AppVersion }}
{{- with index (.Chart.Annotations | default dict) "fixpoint.dev/image-digest" }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "fixpoint.labels" -}}
app.kubernetes.io/name: fixpoint
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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
  name: {{ include "fixpoint.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{- define "fixpoint.webhook" -}}
{{ include "fixpoint.fullname" . }}-webhook
{{- end }}

{{/* The Secret with the certificate of the webhook; empty if the manager issues it. */}}
{{- define "fixpoint.webhookCertificate" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{ include "fixpoint.webhook" . }}-certificate
{{- else -}}
{{ .Values.webhook.certificateSecret }}
{{- end -}}
{{- end }}

{{/* Whether this release serves the webhook: by default, the release that installs the CRDs does. A manager without
permissions on cluster-scoped resources cannot set the CA bundle, and needs a certificate. */}}
{{- define "fixpoint.servesWebhook" -}}
{{- $enabled := ternary .Values.crds.install .Values.webhook.enabled (kindIs "invalid" .Values.webhook.enabled) }}
{{- if and $enabled (or (not .Values.rbac.namespaced) (include "fixpoint.webhookCertificate" .)) -}}
true
{{- end -}}
{{- end }}

{{/* Fails if a value for the webhook would have no effect, or would be replaced by what the manager or cert-manager sets. */}}
{{- define "fixpoint.checkWebhook" -}}
{{- if and .Values.webhook.certManager.enabled .Values.webhook.certificateSecret -}}
{{ fail "webhook.certManager.enabled and webhook.certificateSecret are both set: set one of them" }}
{{- end -}}
{{- if and .Values.webhook.caBundle (not .Values.webhook.certificateSecret) -}}
{{ fail "webhook.caBundle is set, but webhook.certificateSecret is empty: set both, or neither, so that the CA bundle is set with the certificate" }}
{{- end -}}
{{- if and .Values.webhook.caBundle (not .Values.crds.install) -}}
{{ fail "webhook.caBundle is set, but crds.install is false: set the CA bundle in the CustomResourceDefinitions, and not here" }}
{{- end -}}
{{- if and .Values.webhook.enabled (not (include "fixpoint.servesWebhook" .)) -}}
{{ fail "webhook.enabled is true, but with rbac.namespaced the manager can set no CA bundle: set webhook.certificateSecret or webhook.certManager.enabled" }}
{{- end -}}
{{- end }}

{{/* The controllers to run, as a JSON list. */}}
{{- define "fixpoint.controllers" -}}
{{- .Values.controllers | default (list "appservice" "mcpserver" "securestorage") | toJson -}}
{{- end }}

{{/* Fails if users of a watched namespace could run pods with the ServiceAccount of the manager. */}}
{{- define "fixpoint.checkNamespaces" -}}
{{- if and .Values.namespaceSelector .Values.namespaces -}}
{{ fail "namespaces and namespaceSelector are both set: set one of them" }}
{{- end -}}
{{- if and .Values.namespaceSelector .Values.rbac.namespaced -}}
{{ fail "namespaceSelector requires the permission to list and watch all namespaces: set rbac.namespaced to false, or set namespaces instead" }}
{{- end -}}
{{- if and .Values.rbac.namespaced (not .Values.namespaces) -}}
{{ fail "rbac.namespaced is true, but namespaces is empty: set the namespaces to watch" }}
{{- end -}}
{{- if has .Release.Namespace .Values.namespaces -}}
{{ fail (printf "namespaces contains %s, the namespace of the release, in which whoever creates pods can run them with the ServiceAccount of the manager: install the release in a namespace of its own" .Release.Namespace) }}
{{- end -}}
{{- end }}
