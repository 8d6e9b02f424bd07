{{/* Names, labels and pieces that several templates share. Every access to a value that --reuse-values may lack is nil-safe. */}}

{{- define "emugpu.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{/* "emugpu.labels" (dict "root" . "component" "node") */}}
{{- define "emugpu.labels" -}}
{{ include "emugpu.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: emugpu
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "emugpu.selector" -}}
app.kubernetes.io/name: emugpu
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "emugpu.image" -}}
{{- $image := .Values.image | default dict -}}
{{ $image.repository | default "emugpu" }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "emugpu.pullPolicy" -}}
{{ (.Values.image | default dict).pullPolicy | default "IfNotPresent" }}
{{- end -}}

{{- define "emugpu.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* A switch that is on unless it is false, also where --reuse-values brings no such value: "emugpu.on" (list .Values.rbac "create") */}}
{{- define "emugpu.on" -}}
{{- $section := index . 0 | default dict -}}
{{- if ne (index $section (index . 1) | toString) "false" -}}true{{- end -}}
{{- end -}}

{{/* Whether SchedulingExperiments are run: their controller is in the jobs controller's program. */}}
{{- define "emugpu.experiments" -}}
{{- if and (include "emugpu.on" (list .Values.experiments "enabled")) (include "emugpu.on" (list .Values.jobController "enabled")) -}}true{{- end -}}
{{- end -}}

{{/* What the jobs controller is told of runners' pods, as JSON: "emugpu.experimentPod" .Values.experiments */}}
{{- define "emugpu.experimentPod" -}}
{{- $resources := dict "requests" (dict "cpu" "200m" "memory" "256Mi") "limits" (dict "memory" "2Gi") -}}
{{- $pod := dict "resources" (ternary .resources $resources (hasKey . "resources")) -}}
{{- range $name := list "nodeSelector" "tolerations" "priorityClassName" -}}
{{- with index $ $name }}{{ $_ := set $pod $name . }}{{ end -}}
{{- end -}}
{{- $pod | toJson -}}
{{- end -}}

{{/* "emugpu.schedulerImage" (dict "root" . "image" .Values.scheduler.image): by default with the tag of the chart's image */}}
{{- define "emugpu.schedulerImage" -}}
{{- $image := .image | default dict -}}
{{ $image.repository | default "emugpu-scheduler" }}:{{ $image.tag | default (.root.Values.image | default dict).tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* A hook's Job runs in the name of an account that comes and goes with it: where no role is made, it would fail for minutes. */}}
{{- define "emugpu.hookNeedsRoles" -}}
{{- if not (include "emugpu.on" (list .root.Values.rbac "create")) -}}
{{- fail (printf "%s.enabled: this hook needs roles, which rbac.create=false doesn't make; set prepare.enabled=false and cleanup.enabled=false and do by hand what they do (the chart's README, 'Roles of your own')" .hook) -}}
{{- end -}}
{{- end -}}

{{/* Security of a container that needs nothing; and of its pod. */}}
{{- define "emugpu.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "emugpu.podConfined" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* "emugpu.scheduling" .Values.controller */}}
{{- define "emugpu.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The form in which names of GPU types are compared, as in emulator_runtime/profiles/catalogue.py. */}}
{{- define "emugpu.spelling" -}}
{{- . | trim | lower | replace "_" "-" | replace " " "-" -}}
{{- end -}}

{{/* "emugpu.probes" "port name" */}}
{{- define "emugpu.probes" -}}
startupProbe: {httpGet: {path: /healthz, port: {{ . }}}, periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 3}
livenessProbe: {httpGet: {path: /healthz, port: {{ . }}}, periodSeconds: 20, failureThreshold: 3, timeoutSeconds: 5}
readinessProbe: {httpGet: {path: /readyz, port: {{ . }}}, periodSeconds: 2, failureThreshold: 2, timeoutSeconds: 3}
{{- end -}}

{{/* The port at which the jobs controller offers results to the API. */}}
{{- define "emugpu.resultsPort" -}}
{{ (.Values.jobController | default dict).resultsPort | default 9405 }}
{{- end -}}

{{/* "emugpu.scrape" (dict "root" . "port" 9400) */}}
{{- define "emugpu.scrape" -}}
{{- if include "emugpu.on" (list .root.Values.metrics "annotations") }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{/* A whole number that may be 0, and absent where --reuse-values brings none: "emugpu.whole" (dict "value" . "default" 1) */}}
{{- define "emugpu.whole" -}}
{{- if kindIs "invalid" .value -}}{{ .default }}{{- else -}}{{ printf "%.0f" (float64 .value) }}{{- end -}}
{{- end -}}

{{/* Settings given by the user: "emugpu.settings" (dict "prefix" "EMUGPU_MANAGER_" "values" ...) */}}
{{- define "emugpu.settings" -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .values | default dict }}
{{- /* A number of a values file is a float, which toString writes as 6.7108864e+07 where it's large. */}}
- {name: {{ $prefix }}{{ $name }}, value: {{ ternary (printf "%.0f" (float64 $value)) (toString $value) (kindIs "float64" $value) | quote }}}
{{- end }}
{{- end -}}

{{/* A count above it is refused in words, before CEL's whole numbers overflow; MOST_DEVICES of operators/admission/review.py. */}}
{{- define "emugpu.mostDevices" -}}2147483647{{- end -}}

{{- define "emugpu.aliasMode" -}}
{{- $mode := (.Values.alias | default dict).mode | default "auto" -}}
{{- if ne $mode "auto" -}}{{ $mode }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}policy
{{- else -}}webhook
{{- end -}}
{{- end -}}

{{/* Where the managers find the Redis URL: own, external or none. */}}
{{- define "emugpu.redisMode" -}}
{{- $redis := .Values.redis | default dict -}}
{{- $external := $redis.external | default dict -}}
{{- if not (include "emugpu.on" (list $redis "enabled")) -}}none
{{- else if $external.existingSecret -}}secret
{{- else if $external.url -}}url
{{- else -}}own
{{- end -}}
{{- end -}}

{{/* Bytes, as Redis writes sizes (redis.conf: 1k is 1000, 1kb is 1024) and as Kubernetes writes quantities. */}}
{{- define "emugpu.redisBytes" -}}
{{- $size := . | toString | lower -}}
{{- $units := dict "" 1 "b" 1 "k" 1000 "kb" 1024 "m" 1000000 "mb" 1048576 "g" 1000000000 "gb" 1073741824 -}}
{{- mul (regexFind "^[0-9]+" $size | int64) (get $units (regexFind "[a-z]*$" $size)) -}}
{{- end -}}

{{- define "emugpu.quantityBytes" -}}
{{- $unit := regexFind "(Ki|Mi|Gi|Ti|Pi|Ei|[kMGTPE]|m)$" (toString .) -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (trimSuffix $unit (toString .) | float64) (get $units $unit) | printf "%.0f" -}}
{{- end -}}

{{- define "emugpu.redisSecret" -}}
{{- if eq (include "emugpu.redisMode" .) "secret" -}}{{ .Values.redis.external.existingSecret }}{{- else -}}{{ include "emugpu.name" . }}-redis{{- end -}}
{{- end -}}

{{- define "emugpu.redisSecretKey" -}}
{{- if eq (include "emugpu.redisMode" .) "secret" -}}{{ .Values.redis.external.existingSecretKey | default "url" }}{{- else -}}url{{- end -}}
{{- end -}}

{{/* Kinds that hold pod specs, as admission rules. */}}
{{- define "emugpu.podKinds" -}}
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, replicationcontrollers, podtemplates]}
- {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments, replicasets, daemonsets, statefulsets]}
- {apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs, cronjobs]}
{{- end -}}

{{/* CEL: does any container say the short name? Without it neither policy nor webhook is asked. */}}
{{- define "emugpu.aliasCondition" -}}
{{- $alias := (.Values.alias | default dict).name | default "emuGPU" -}}
- name: says-the-short-name
  expression: >-
    (request.kind.kind == 'Pod' ? [object.?spec] :
     request.kind.kind == 'PodTemplate' ? [object.?template.?spec] :
     request.kind.kind == 'CronJob' ? [object.?spec.?jobTemplate.?spec.?template.?spec] :
     [object.?spec.?template.?spec]
    ).exists(s, [s.?containers.orValue([]), s.?initContainers.orValue([])].exists(group, group.exists(c,
      c.?resources.?limits[?'{{ $alias }}'].hasValue() || c.?resources.?requests[?'{{ $alias }}'].hasValue())))
{{- end -}}
