package pipectl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// This file contains the formatting of values in tables.

// age formats how long ago a time in unix milliseconds is, in one unit; "" for 0.
func (p *printer) age(ms int64) string {
	if ms == 0 {
		return ""
	}
	return short(p.now.Sub(time.UnixMilli(ms)))
}

// ageSeconds does the same for PipeCD's unix seconds.
func (p *printer) ageSeconds(s int64) string { return p.age(s * 1000) }

// when formats a time in unix milliseconds and how long ago it is; "" for 0.
func (p *printer) when(ms int64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf("%s ago (%s)", p.age(ms), time.UnixMilli(ms).UTC().Format(time.RFC3339))
}

// short formats a duration in one unit, such as 42s, 5m, 3h or 12d.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// word returns an enum's name without its prefix; "" for the unspecified value.
func word(value fmt.Stringer, prefix string) string {
	name := strings.TrimPrefix(value.String(), prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return name
}

// colored colours a status by its severity.
func colored(status string) cell {
	c := yellow
	switch status {
	case "SUCCESS", "SYNCED", "COMPLETE", "HEALTHY", "NO_ROLLOUT", "ONLINE", "ENDED", "READY":
		c = green
	case "FAILURE", "FAILED", "TIMED_OUT", "DEGRADED", "MISSING", "INVALID_CONFIG", "GONE", "OFFLINE":
		c = red
	case "CANCELLED", "SKIPPED", "EXITED", "NOT_STARTED_YET", "SUPERSEDED", "OUTDATED", "UNKNOWN", "DISABLED", "REMOVED":
		c = faint
	}
	return cell{text: status, color: c}
}

func deploymentStatus(s modelv1.DeploymentStatus) cell { return colored(word(s, "DEPLOYMENT_")) }
func stageStatus(s modelv1.StageStatus) cell           { return colored(word(s, "STAGE_")) }

// shortHash returns the short form of a commit's hash.
func shortHash(hash string) string { return hash[:min(len(hash), 7)] }

// pairs formats labels in order.
func pairs(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+":"+labels[k])
	}
	return strings.Join(out, ",")
}

// objectName returns a live object's namespace and name.
func objectName(o *modelv1.ObjectRef) string {
	return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

// named formats a name with its ID, or the ID alone.
func named(name, id string) string {
	if name == "" {
		return id
	}
	return name + " (" + id + ")"
}

// firstLine returns the first line of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
