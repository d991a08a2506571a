package main

import (
	"embed"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
)

// stageFiles are what the simulated nodes and pods do, one transition each.
//
//go:embed stages/*.yaml
var stageFiles embed.FS

// The fragments the stages share. Selectors are jq, statuses are templates;
// neither can define functions, so a stage names a fragment as ${NAME}.
const (
	jqAlive = `(.metadata.deletionTimestamp | not)`
	jqReady = `any(.status.conditions[]?; .type == "Ready" and .status == "True")`

	// jqBehavior is what the pod is asked to do: by its label, else by the
	// first image tag that names a failure, so that an image change can fail.
	jqBehavior = `(.metadata.labels["devcluster.piped.dev/behavior"]` +
		` // ([.spec.containers[].image | split("@")[0] | split("/") | last | split(":")[1]` +
		` | {"bad-image": "image-pull-error", "does-not-exist": "image-pull-error",` +
		` "crash": "crash-loop", "never-ready": "never-ready"}[. // ""] // empty] | first)` +
		` // "ready")`

	jqReadyDelay = `(.metadata.annotations["devcluster.piped.dev/ready-delay"]` +
		` // .metadata.labels["devcluster.piped.dev/ready-delay"] // "%s")`

	// tplReadyConditions keeps the transition time of a condition that does
	// not change: minReadySeconds and rollout detection count from it.
	tplReadyConditions = `{{ $status := ternary "True" "False" $ready }}
{{ range $type := tuple "ContainersReady" "Ready" }}
{{ $since := $now }}
{{ range $.status.conditions }}{{ if and (eq .type $type) (eq .status $status) }}{{ $since = .lastTransitionTime }}{{ end }}{{ end }}
- type: {{ $type }}
  status: {{ $status | Quote }}
  lastTransitionTime: {{ $since | Quote }}
  {{ if $ready }}
  reason: null
  message: null
  {{ else }}
  reason: ContainersNotReady
  message: "containers with unready status: [{{ range $i, $c := $.spec.containers }}{{ if $i }} {{ end }}{{ $c.name }}{{ end }}]"
  {{ end }}
{{ end }}`

	tplAddresses = `{{ if not .status.podIP }}
{{ $hostIP := NodeIPWith .spec.nodeName }}
{{ $podIP := PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
hostIP: {{ $hostIP | Quote }}
hostIPs: [{ip: {{ $hostIP | Quote }}}]
podIP: {{ $podIP | Quote }}
podIPs: [{ip: {{ $podIP | Quote }}}]
{{ end }}`
)

// writeStages writes the configuration of the node simulation to file, with
// readyDelay as the delay of every pod that does not set its own.
func writeStages(file string, readyDelay time.Duration) error {
	delay := fmt.Sprintf(jqReadyDelay, readyDelay)
	fragments := map[string]string{
		"ALIVE":            jqAlive,
		"READY":            jqReady,
		"BEHAVIOR":         jqBehavior,
		"READY_DELAY":      delay,
		"STARTS_READY":     `(` + jqBehavior + ` == "ready" and (` + delay + ` | IN("0s", "0", "0ms")))`,
		"READY_CONDITIONS": tplReadyConditions,
		"ADDRESSES":        tplAddresses,
	}
	entries, err := stageFiles.ReadDir("stages")
	if err != nil {
		return fmt.Errorf("listing the embedded stages: %w", err)
	}
	var docs []string
	for _, entry := range entries {
		raw, err := stageFiles.ReadFile(path.Join("stages", entry.Name()))
		if err != nil {
			return fmt.Errorf("reading the embedded stage %s: %w", entry.Name(), err)
		}
		docs = append(docs, instantiate(string(raw), fragments)...)
	}
	if err := os.WriteFile(file, []byte(strings.Join(docs, "---\n")), 0o600); err != nil {
		return fmt.Errorf("writing the stages of the simulated nodes: %w", err)
	}
	return nil
}

// instantiate fills the fragments into one stage. A stage that names ${VALUE}
// stands for two, one for each truth value.
func instantiate(stage string, fragments map[string]string) []string {
	var docs []string
	for _, value := range []string{"true", "false"} {
		doc := strings.ReplaceAll(stage, "${VALUE}", value)
		docs = append(docs, fill(doc, fragments))
		if doc == stage {
			break
		}
	}
	return docs
}

var fragmentLine = regexp.MustCompile(`(?m)^( *)\$\{([A-Z_]+)\}$`)
var fragmentWord = regexp.MustCompile(`\$\{([A-Z_]+)\}`)

// fill replaces fragments, giving a fragment alone on its line that line's
// indentation throughout.
func fill(doc string, fragments map[string]string) string {
	doc = fragmentLine.ReplaceAllStringFunc(doc, func(line string) string {
		m := fragmentLine.FindStringSubmatch(line)
		return m[1] + strings.ReplaceAll(fragments[m[2]], "\n", "\n"+m[1])
	})
	return fragmentWord.ReplaceAllStringFunc(doc, func(word string) string {
		return fragments[word[2:len(word)-1]]
	})
}
