{{/* The API and the dashboard, as a container of the pod of the controller of EmuJobs: they read its store. */}}
{{- define "emugpu.apiContainer" -}}
{{- $api := .Values.api | default dict -}}
{{- if include "emugpu.on" (list $api "enabled") -}}
- name: api
  image: {{ include "emugpu.image" . }}
  imagePullPolicy: {{ include "emugpu.pullPolicy" . }}
  command: [python3, -m, operators.api]
  env:
  - {name: EMUGPU_API_PORT, value: {{ $api.port | default 9404 | quote }}}
  - {name: EMUGPU_API_STORE, value: /store/results.db}
  - {name: EMUGPU_API_TITLE, value: {{ $api.title | default .Release.Name | quote }}}
  - {name: EMUGPU_API_HOSTS, value: {{ join "," ($api.hosts | default list) | quote }}}
  - {name: EMUGPU_API_SESSION_S, value: {{ include "emugpu.whole" (dict "value" $api.sessionSeconds "default" 28800) | quote }}}
  {{- with $api.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  ports:
  - {name: http, containerPort: {{ $api.port | default 9404 }}}
  {{- include "emugpu.probes" "http" | nindent 2 }}
  securityContext: {{- include "emugpu.confined" . | nindent 4 }}
  {{- with $api.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
  - {name: store, mountPath: /store}
{{- end -}}
{{- end -}}
