package page

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the links of a log.
const (
	linksAge   = 5 * time.Second // of the live state
	linksLevel = 500             // objects of a kind that have links, the maximum of the API
)

// textRun is a part of a line that is a link, or one that is none.
type textRun struct {
	path  string // "" for none
	parts []coloured
}

// objectLinks finds the names of an application's live objects in text. Nil finds none.
type objectLinks struct {
	madeAt  time.Time
	kinds   map[string]bool
	paths   map[string]string // by the names as stages write them: `Kind namespace/name` or `Kind name`
	longest int               // bytes of a name
}

// objectLinks returns what finds the objects of a deployment's application; nil if the caller may
// not open them, or the cluster does not answer. It returns have unless that is older than linksAge.
func (v *visit) objectLinks(d *modelv1.Deployment, have *objectLinks) *objectLinks {
	now := v.config.Now()
	if have != nil && now.Sub(have.madeAt) < linksAge {
		return have
	}
	if !v.can("view", d.ApplicationId) || !v.can("view-logs", d.ApplicationId) {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, v.config.LiveWait)
	defer cancel()
	state := v.readLive(ctx, &controlv1.GetLiveStateRequest{ApplicationId: d.ApplicationId, LevelLimit: linksLevel, MaxAgeMs: linksAge.Milliseconds()})
	if state == nil {
		return nil
	}
	a := &applicationView{id: d.ApplicationId, app: &modelv1.Application{Name: d.ApplicationName, PlatformProvider: d.PlatformProvider}}
	links := newObjectLinks(state, func(o *modelv1.ObjectRef) string { return objectPath(a, o, "") })
	links.madeAt = now
	return links
}

// newObjectLinks returns the links to the objects of a live state. A name that several objects have,
// such as those of two API groups, is none.
func newObjectLinks(state *modelv1.LiveState, path func(*modelv1.ObjectRef) string) *objectLinks {
	l := &objectLinks{kinds: map[string]bool{}, paths: map[string]string{}}
	for _, o := range state.GetObjects() {
		ref := o.GetObject()
		name := ref.GetName()
		if ref.GetNamespace() != "" {
			name = ref.Namespace + "/" + name
		}
		name = ref.GetKind() + " " + name
		if _, several := l.paths[name]; several {
			l.paths[name] = ""
			continue
		}
		l.kinds[ref.GetKind()], l.paths[name] = true, path(ref)
		l.longest = max(l.longest, len(name))
	}
	return l
}

// foundName is a name of an object in a text.
type foundName struct {
	from, to int // bytes
	path     string
}

// find returns the names of objects in a text, in their order. It reads the text once.
func (l *objectLinks) find(text string) (out []foundName) {
	if l == nil || len(l.kinds) == 0 {
		return nil
	}
	for at := 0; at < len(text); {
		end := endOfWord(text, at)
		if end == at {
			at++
			continue
		}
		if end < len(text) && text[end] == ' ' && l.kinds[text[at:end]] {
			if f, ok := l.nameAt(text, at, end+1); ok {
				out, end = append(out, f), f.to
			}
		}
		at = end
	}
	return out
}

// nameAt returns the name whose kind begins at from and whose word after that begins at word.
func (l *objectLinks) nameAt(text string, from, word int) (foundName, bool) {
	for to := range l.endsOfName(text, from, word) {
		if path := l.paths[text[from:to]]; path != "" {
			return foundName{from, to, path}, true
		}
	}
	return foundName{}, false
}

// endsOfName returns where a name may end: with its word, or before punctuation that follows it. What
// is longer than all names is none of them.
func (l *objectLinks) endsOfName(text string, from, word int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for to := endOfWord(text, word); to > word; to-- {
			if to-from <= l.longest && !yield(to) || strings.IndexByte(".:/-", text[to-1]) < 0 {
				return
			}
		}
	}
}

// endOfWord returns the end of the word that begins at a byte. A word consists of the characters
// that names of objects may have, and of all that are not ASCII.
func endOfWord(text string, at int) int {
	for at < len(text) && isNameByte(text[at]) {
		at++
	}
	return at
}

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b >= 0x80 || strings.IndexByte(".:/-_", b) >= 0
}

// runs divides a line at the names of objects. A name in several colours is one link.
func (l *objectLinks) runs(text string, parts []coloured) (out []textRun) {
	if parts == nil {
		parts = []coloured{{"", text}}
	}
	parts = slices.Clone(parts) // cutParts changes them
	at := 0
	for _, f := range l.find(text) {
		var before, name []coloured
		before, parts = cutParts(parts, f.from-at)
		name, parts = cutParts(parts, f.to-f.from)
		if len(before) > 0 {
			out = append(out, textRun{parts: before})
		}
		out, at = append(out, textRun{f.path, name}), f.to
	}
	if len(parts) > 0 {
		out = append(out, textRun{parts: parts})
	}
	return out
}

// cutParts divides parts after n bytes. The rest is the end of parts, with the part that is cut.
func cutParts(parts []coloured, n int) (before, after []coloured) {
	for i, p := range parts {
		if n < len(p.text) {
			if n > 0 {
				before = append(before, coloured{p.class, p.text[:n]})
			}
			parts[i].text = p.text[n:]
			return before, parts[i:]
		}
		before, n = append(before, p), n-len(p.text)
	}
	return before, nil
}
