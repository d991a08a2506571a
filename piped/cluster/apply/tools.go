package apply

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/manifest"
)

// shownObjects is how many objects warnOfTools names per application of another tool.
const shownObjects = 3

// warnOfTools logs which live objects another GitOps tool manages. The first apply of an object
// removes the marks by which the tool knows it; a later run finds them only if the tool has
// applied the object since.
func (r *applyRun) warnOfTools(context.Context) error {
	objects := map[string][]string{}
	for _, t := range r.targets {
		if t.live == nil {
			continue
		}
		if tool := manifest.OtherTool(t.live); tool != "" {
			objects[tool] = append(objects[tool], t.ref.String())
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(objects)) {
		names := objects[tool]
		more := ""
		if n := len(names) - shownObjects; n > 0 {
			names, more = names[:shownObjects], ", …"
		}
		r.req.Log.Infof("warning: %s manages %d of the objects, too: %s%s. Pause it there, or both undo what the other applies (docs/migrate.md)", tool, len(objects[tool]), strings.Join(names, ", "), more)
	}
	return nil
}
