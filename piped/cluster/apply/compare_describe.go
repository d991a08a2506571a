package apply

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const (
	// longestDriftValue bounds the displayed bytes of a value.
	longestDriftValue = 1024

	maskedValue = `"***"` // replaces a redacted value

	// Replacements of redacted values in a unified diff. A changed value has different
	// replacements in Git and live, so that the diff shows the line.
	diffMasked     = "(secret)"
	diffMaskedGit  = "(secret, as in Git)"
	diffMaskedLive = "(secret, as it is live)"
	diffRedacted   = "(redacted)"
)

// drift returns the drift of an object with the difference d, with secrets redacted.
func (r *comparison) drift(t *target, live *unstructured.Unstructured, d difference) *deploy.ObjectDrift {
	describe := describer{conceal: r.compare.Conceal, owners: ownersOf(live)}
	out := &deploy.ObjectDrift{Object: t.ref, Cluster: r.cluster.Name(), Kind: deploy.DriftChanged, Note: describe.text(d.note)}
	if owner := r.foreignOwner(live); owner != "" {
		out.Note = "it says that it belongs to " + owner
	}
	for _, change := range d.changes {
		out.Fields = append(out.Fields, describe.field(live, change))
	}
	if r.compare.Diff {
		out.Diff = describe.diff(d.git, d.live, d.changes)
	}
	return out
}

// describer formats differences and redacts secrets.
type describer struct {
	conceal Concealer
	owners  []fieldOwner
}

// text returns s with secrets redacted.
func (d describer) text(s string) string {
	if d.conceal == nil {
		return s
	}
	return d.conceal.Text(s)
}

// field describes one difference, with the field manager that last wrote the live value.
func (d describer) field(u *unstructured.Unstructured, change manifest.Change) deploy.FieldDrift {
	out := deploy.FieldDrift{Path: d.text(change.Path), Masked: d.masks(u, change)}
	out.Git, out.Live = display(change.Before, out.Masked), display(change.After, out.Masked)
	if change.After == nil {
		return out // a missing field has no owner
	}
	for _, owner := range d.owners {
		if owner.at.After(out.ChangedAt) && owner.owns(change.Path) || out.Manager == "" && owner.owns(change.Path) {
			out.Manager, out.ChangedAt = owner.name, owner.at
		}
	}
	return out
}

// masks reports whether the values of a difference are redacted.
func (d describer) masks(u *unstructured.Unstructured, change manifest.Change) bool {
	return manifest.Confidential(u.GetAPIVersion(), u.GetKind(), change.Path) || d.holdsSecret(change.Before) || d.holdsSecret(change.After)
}

// holdsSecret reports whether a value contains a decrypted secret, in plain text or base64.
func (d describer) holdsSecret(v any) bool {
	if d.conceal == nil {
		return false
	}
	return slices.ContainsFunc(textsOf(v), d.isSecret)
}

// isSecret is holdsSecret for a string.
func (d describer) isSecret(text string) bool {
	if d.text(text) != text {
		return true
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return err == nil && d.text(string(raw)) != string(raw)
}

// textsOf returns all scalars in a JSON value as strings, and the keys of maps.
func textsOf(v any) (out []string) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for key, value := range v {
			out = append(append(out, key), textsOf(value)...)
		}
	case []any:
		for _, item := range v {
			out = append(out, textsOf(item)...)
		}
	default:
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// display returns a value as JSON, truncated to longestDriftValue bytes; "" for nil.
func display(v any, masked bool) string {
	switch {
	case v == nil:
		return ""
	case masked:
		return maskedValue
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Unreachable: objects hold only what JSON holds.
		panic("kubernetes: a value that is no JSON: " + err.Error())
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) <= longestDriftValue {
		return text
	}
	end := longestDriftValue
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// diff returns the unified diff of the object in Git and the live one, with secrets redacted.
// One of them may be nil. If a change involves a secret, all live texts of that change are
// redacted, because the live value may be another secret.
func (d describer) diff(git, live *unstructured.Unstructured, changes []manifest.Change) string {
	hidden := d.hiddenTexts(changes)
	side := func(u *unstructured.Unstructured) *manifest.Object {
		if u == nil {
			return nil
		}
		out, _ := d.hide(u.Object, hidden).(map[string]any)
		if !manifest.Confidential(u.GetAPIVersion(), u.GetKind(), "") {
			return &manifest.Object{Unstructured: &unstructured.Unstructured{Object: out}}
		}
		return &manifest.Object{Unstructured: u} // manifest.Difference redacts Secrets
	}
	return d.text(manifest.Difference{Before: side(git), After: side(live)}.Hunks())
}

// hiddenTexts returns the replacements of the texts of those changes that involve a secret.
func (d describer) hiddenTexts(changes []manifest.Change) map[string]string {
	hidden := map[string]string{}
	for _, change := range changes {
		if !d.holdsSecret(change.Before) && !d.holdsSecret(change.After) {
			continue
		}
		for _, text := range textsOf(change.After) {
			hidden[text] = diffMaskedLive
		}
		for _, text := range textsOf(change.Before) {
			delete(hidden, text) // a text in Git is displayed unless it is a secret
			if d.isSecret(text) {
				hidden[text] = diffMaskedGit
			}
		}
	}
	return hidden
}

// hide returns a copy of a JSON value in which secrets are redacted, and scalars whose text is
// a key of hidden are replaced.
func (d describer) hide(v any, hidden map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for key, value := range out {
			out[key] = d.hide(value, hidden)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, item := range out {
			out[i] = d.hide(item, hidden)
		}
		return out
	case nil:
		return nil
	}
	text := fmt.Sprint(v)
	switch replacement := hidden[text]; {
	case replacement != "":
		return replacement
	case d.conceal != nil && d.isSecret(text):
		return diffMasked
	}
	return v
}

// fieldOwner is an entry of managed fields of a manager other than the agent.
type fieldOwner struct {
	name   string // of the manager, with the subresource
	at     time.Time
	leaves []leaf
}

// ownersOf returns the owners of fields of an object, without the agent's applies and the
// writers of status.
func ownersOf(live metav1.Object) (out []fieldOwner) {
	for _, e := range live.GetManagedFields() {
		if isOurs(e) || e.Subresource == "status" {
			continue
		}
		owner := fieldOwner{name: e.Manager, leaves: leavesOf(e)}
		if e.Subresource != "" {
			owner.name += " (" + e.Subresource + ")"
		}
		if e.Time != nil {
			owner.at = e.Time.UTC()
		}
		out = append(out, owner)
	}
	return out
}

// owns reports whether the manager owns the field at path, a part of it, or a value that
// contains it.
func (o fieldOwner) owns(path string) bool {
	return slices.ContainsFunc(o.leaves, func(l leaf) bool { return covers(l.path, path) || covers(path, l.path) })
}
