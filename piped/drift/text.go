package drift

import (
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Limits of the reason text.
const (
	maxShownObjects = 20
	maxShownFields  = 3
	maxShownCommits = 10
	maxShownCauses  = 3
	maxShownBytes   = 80 // bytes of a value
)

// Texts for the log and for users.
var (
	eventTexts = map[deploy.EventType]string{
		deploy.EventOutOfSync: "is out of sync", deploy.EventSynced: "is in sync again",
	}
	endTexts = map[deploy.DriftEnd]string{
		deploy.DriftDeployed: "A deployment has brought it back to Git",
		deploy.DriftReverted: "The change in the cluster was reverted",
		deploy.DriftAccepted: "Git or the ignore rules allow it now",
	}
)

// shortReason summarizes a report: the number of differences and of undeployed commits.
func shortReason(r deploy.DriftReport, hold *deploy.Hold) string {
	kinds := map[deploy.DriftKind]int{}
	for _, o := range r.Objects {
		kinds[o.Kind]++
	}
	var counts []string
	for _, k := range []struct {
		kind deploy.DriftKind
		word string
	}{{deploy.DriftMissing, "missing"}, {deploy.DriftChanged, "changed"}, {deploy.DriftExtra, "extra"}} {
		if n := kinds[k.kind]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, k.word))
		}
	}
	text := ""
	if len(r.Objects) > 0 {
		text = count(len(r.Objects), "difference") + ": " + strings.Join(counts, ", ")
	}
	switch {
	case len(r.Undeployed) > 0:
		text = joined(text, count(len(r.Undeployed), "commit")+" not deployed")
	case text == "" && hold != nil:
		text = "Commit " + hold.Commit.Short() + ", which the application is held at, is not deployed"
	case text == "":
		text = "The head of the branch is not deployed"
	}
	return text
}

// reason lists the differing objects and their first differing fields.
func reason(r deploy.DriftReport, hold *deploy.Hold) string {
	var b strings.Builder
	if len(r.Objects) > 0 {
		fmt.Fprintf(&b, "Live objects in cluster %q differ from Git at commit %s:\n", r.Cluster, deploy.ShortHash(r.Commit))
	}
	for _, o := range r.Objects[:min(len(r.Objects), maxShownObjects)] {
		b.WriteString(objectText(o, r.Cluster))
	}
	if left := len(r.Objects) - maxShownObjects; left > 0 {
		fmt.Fprintf(&b, "... and %d more\n", left)
	}
	switch {
	case len(r.Undeployed) > 0:
		fmt.Fprintf(&b, "Not deployed, while commit %s is: %s\n", deploy.ShortHash(r.Commit), commitsText(r.Undeployed))
	case len(r.Objects) == 0 && hold != nil:
		fmt.Fprintf(&b, "Commit %s is deployed, while the application is held at commit %s\n", deploy.ShortHash(r.Commit), hold.Commit.Short())
	case len(r.Objects) == 0:
		fmt.Fprintf(&b, "The branch has moved on from commit %s, which is deployed\n", deploy.ShortHash(r.Commit))
	}
	if r.Incomplete != "" {
		fmt.Fprintf(&b, "Not compared: %s\n", r.Incomplete)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// objectText describes the drift of one object, in one or more lines. It names the object's
// cluster only if it differs from the report's cluster, which is the second argument.
func objectText(o deploy.ObjectDrift, cluster string) string {
	name := o.Object.String()
	if o.Cluster != "" && o.Cluster != cluster {
		name += fmt.Sprintf(" in cluster %q", o.Cluster)
	}
	if o.Note != "" {
		name += " (" + o.Note + ")"
	}
	switch o.Kind {
	case deploy.DriftMissing:
		return "- " + name + " is missing\n"
	case deploy.DriftExtra:
		return "+ " + name + " is not in Git\n"
	}
	var b strings.Builder
	b.WriteString("~ " + name + "\n")
	for _, f := range o.Fields[:min(len(o.Fields), maxShownFields)] {
		b.WriteString("    " + fieldText(f) + "\n")
	}
	if left := len(o.Fields) - maxShownFields; left > 0 {
		fmt.Fprintf(&b, "    ... and %s more\n", count(left, "field"))
	}
	return b.String()
}

func fieldText(f deploy.FieldDrift) string {
	text := f.Path + ": "
	switch {
	case f.Masked && f.Live == "":
		text += "a secret in Git, nothing live"
	case f.Masked:
		text += "another value than in Git (secret)"
	default:
		text += value(f.Git) + " in Git, " + value(f.Live) + " live"
	}
	if f.Manager != "" {
		text += ", by " + f.Manager
	}
	return text
}

// value returns a value truncated to maxShownBytes, and "nothing" for "".
func value(v string) string {
	if v == "" {
		return "nothing"
	}
	if len(v) > maxShownBytes {
		return strings.ToValidUTF8(v[:maxShownBytes], "") + "..."
	}
	return v
}

func commitsText(hashes []string) string {
	var short []string
	for _, h := range hashes[:min(len(hashes), maxShownCommits)] {
		short = append(short, deploy.ShortHash(h))
	}
	if left := len(hashes) - maxShownCommits; left > 0 {
		short = append(short, fmt.Sprintf("and %d more", left))
	}
	return strings.Join(short, ", ")
}

// summaryOf describes outages in words that do not change during the outage.
func summaryOf(outages []outage) string {
	clusters, text := map[string]bool{}, ""
	for _, b := range outages {
		if clusters[b.cluster] {
			continue
		}
		clusters[b.cluster] = true
		what := "Undeployed commits are unknown"
		if b.cluster != "" {
			what = fmt.Sprintf("Cluster %q cannot be compared", b.cluster)
			if n := len(b.keys); n > 0 {
				what = fmt.Sprintf("Objects in cluster %q cannot be compared", b.cluster)
			}
		}
		text = joined(text, what)
	}
	return text
}

// detailsOf describes outages with their begin and cause.
func detailsOf(outages []outage) string {
	text := ""
	for _, b := range outages[:min(len(outages), maxShownCauses)] {
		what := ""
		if n := len(b.keys); n > 0 {
			what = count(n, "object") + fmt.Sprintf(" in cluster %q", b.cluster)
			if !b.since.IsZero() {
				what += " since " + b.since.UTC().Format(time.RFC3339)
			}
			what += ": "
		}
		text = joined(text, what+b.why)
	}
	if len(outages) > maxShownCauses {
		text = joined(text, "and more")
	}
	return text
}

func moreObjects(n int) string { return fmt.Sprintf("%d more objects differ", n) }

// count formats a number with a noun in singular or plural, such as "2 commits".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// joined appends a clause to a text, separated by a semicolon.
func joined(text, more string) string {
	if text == "" {
		return more
	}
	return text + "; " + more
}
