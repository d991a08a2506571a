package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// ago returns how long ago a time was, in the coarsest unit that says enough. The script of the
// page counts on in the same words.
func ago(now time.Time, ms int64) string {
	if d := now.Sub(time.UnixMilli(ms)); d >= time.Second {
		return duration(d) + " ago"
	}
	return "just now"
}

// duration returns a duration in words.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}

func millis(ms int64) string { return duration(time.Duration(ms) * time.Millisecond) }

// exact returns a time for people, in the zone of now.
func exact(now time.Time, ms int64) string {
	return time.UnixMilli(ms).In(now.Location()).Format("2006-01-02 15:04:05 MST")
}

// machine returns a time for programs.
func machine(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// short returns the beginning of a commit's hash.
func short(commit string) string { return commit[:min(len(commit), 7)] }

// applicationPath returns the address of an application: readable, and unique through the
// beginning of the ID.
func applicationPath(id, name string) string {
	return "/applications/" + url.PathEscape(applicationRef(id, name))
}

// applicationRef returns what addresses call an application.
func applicationRef(id, name string) string { return name + refMark + id[:min(len(id), refLength)] }

// refMark stands between the name and the ID of an application in addresses.
const (
	refMark   = "~"
	refLength = 8
)

func deploymentPath(id string) string { return "/deployments/" + url.PathEscape(id) }

// withQuery returns a path with a query, if there is one.
func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// plural returns a number with a noun.
func plural[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// sentence returns text with a capital, unless it begins with a name such as `spec.replicas`, and
// a full stop.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if !startsWithName(text) {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if strings.HasSuffix(text, ":") {
		return text
	}
	return stopped(text)
}

// startsWithName reports whether the first word of a text is a field, a file or another name that
// has no capital.
func startsWithName(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	return strings.ContainsAny(strings.TrimRight(word, ".,:;!?"), "./:=[_")
}

// pathParts splits the path of a field before each of its parts, where a line may break.
func pathParts(path string) (parts []string) {
	begin := 0
	for i, r := range path {
		if i > begin && (r == '.' || r == '[') {
			parts, begin = append(parts, path[begin:i]), i
		}
	}
	return append(parts, path[begin:])
}

// versions returns artifacts in one line, such as `web:v2`.
func versions(list []*modelv1.ArtifactVersion) string {
	names := make([]string, 0, len(list))
	for _, v := range list {
		names = append(names, cmp.Or(strings.Trim(v.Name+":"+v.Version, ":"), v.Url))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// objectName returns the name of an object as people write it.
func objectName(o *modelv1.ObjectRef) string {
	name := o.GetKind() + " " + o.GetName()
	if o.GetNamespace() != "" {
		name += " in " + o.GetNamespace()
	}
	return name
}

// rowID returns the ID of an element about something.
func rowID(prefix, id string) string {
	return prefix + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, id)
}

// firstLine returns the first line of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(withoutEscapes(text), "\n")
	return line
}

// byOf returns who asked for a deployment, or else the author of its commit.
func byOf(d *modelv1.Deployment) string {
	return withoutEscapes(cmp.Or(d.GetTrigger().GetCommander(), d.GetTrigger().GetCommit().GetAuthor()))
}

// isOfChain reports whether a deployment was requested by its deployment chain, whose ID is the
// commander.
func isOfChain(d *modelv1.Deployment) bool {
	return d.TriggerKind == modelv1.TriggerKind_TRIGGER_KIND_ON_CHAIN && d.DeploymentChainId != ""
}

// requester returns byOf, or the name of the chain that requested the deployment.
func requester(d *modelv1.Deployment, list []*modelv1.Deployment) string {
	if isOfChain(d) {
		return chainName(d.DeploymentChainId, list)
	}
	return byOf(d)
}

// chainName names a chain after the application that began it if its deployment is in the list,
// else by the beginning of its ID.
func chainName(id string, list []*modelv1.Deployment) string {
	for _, d := range list {
		if d.DeploymentChainId == id && !isOfChain(d) {
			return withoutEscapes("chain of " + d.ApplicationName)
		}
	}
	return withoutEscapes("deployment chain " + id[:min(len(id), 8)])
}
