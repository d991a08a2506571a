package pipectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationTree(t *tool) *cobra.Command {
	req := &controlv1.GetLiveStateRequest{Children: true}
	var watch bool
	cmd := &cobra.Command{
		Use:   "tree NAME",
		Short: "Show the live objects of an application with what they created, as a tree.",
		Long: `Show the live objects of an application with what they created, as a tree. With
--watch, show changes until Ctrl-C: on a terminal the whole tree again, else the
objects that have changed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return watchTree(cmd, t, &req.ApplicationId)
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.LiveState, error) {
				resp, err := c.control.GetLiveState(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the live state", err))
				}
				return resp.GetLiveState(), nil
			}, (*printer).tree)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Show changes until Ctrl-C.")
	return aboutApplication(t, cmd, &req.ApplicationId)
}

// tree shows a live state as an indented tree.
func (p *printer) tree(s *modelv1.LiveState) error {
	if len(s.GetObjects()) == 0 && s.GetIncompleteReason() == "" {
		return p.linef("No objects.")
	}
	return errors.Join(
		p.fields(field{"Health", colored(cmp.Or(word(s.GetHealth(), "HEALTH_"), "UNKNOWN"))},
			field{"Incomplete", cell{text: s.GetIncompleteReason(), color: yellow}}),
		p.section("Objects", p.branches(s.GetObjects())))
}

// branches returns the table of a tree.
func (p *printer) branches(objects []*modelv1.LiveObject) *table {
	t := newTable(fixed("OBJECT"), optional("VARIANT"), fixed("HEALTH"), fixed("READY"), fixed("AGE"), flexible("REASON"))
	for _, o := range objects {
		p.branch(t, o, "")
	}
	return t
}

// branch adds an object and, indented, its children.
func (p *printer) branch(t *table, o *modelv1.LiveObject, indent string) {
	variant := o.GetVariant()
	if variant == "primary" {
		variant = ""
	}
	t.add(indent+o.GetObject().GetKind()+" "+objectName(o.GetObject()), variant, colored(cmp.Or(word(o.GetHealth(), "HEALTH_"), "UNKNOWN")),
		ready(o), p.age(o.GetCreatedAtMs()), o.GetHealthReason())
	for _, child := range o.GetChildren() {
		p.branch(t, child, indent+"  ")
	}
	if n := o.GetChildrenLeftOut(); n > 0 {
		t.add(fmt.Sprintf("%s  and %d more", indent, n), " ", " ", " ", " ", " ")
	}
}

// watchTree shows the tree of an application whenever it changes.
func watchTree(cmd *cobra.Command, t *tool, id *string) error {
	p, log, c, err := t.live(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	w := &treeWatch{printer: p, now: t.now}
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.WatchLiveStateResponse], error) {
		w.begin()
		return c.control.WatchLiveState(ctx, &controlv1.WatchLiveStateRequest{ApplicationId: *id, Children: true})
	}
	err = follow(cmd.Context(), following{what: "the live state", say: log.infof, tick: func() {}}, open, w.take)
	return unknownApplication(err)
}

// treeWatch is the tree of an application that is watched.
type treeWatch struct {
	*printer
	now      func() time.Time
	head     *modelv1.LiveState             // the last state; its objects are in objects
	objects  map[string]*modelv1.LiveObject // by objectKey
	caughtUp bool
}

// begin forgets the objects, because a new call sends all of them.
func (w *treeWatch) begin() { w.objects, w.caughtUp = map[string]*modelv1.LiveObject{}, false }

// take applies a message, and shows the result once the agent has sent all objects.
func (w *treeWatch) take(m *controlv1.WatchLiveStateResponse) error {
	w.printer.now = w.now()
	if w.format != formatTable {
		return w.print(m, nil)
	}
	if m.GetState() != nil {
		w.head = m.GetState()
	}
	for _, o := range m.GetState().GetObjects() {
		w.objects[objectKey(o.GetObject())] = o
	}
	for _, r := range m.GetRemoved() {
		delete(w.objects, objectKey(r))
	}
	w.caughtUp = w.caughtUp || m.GetCaughtUp()
	switch {
	case !w.caughtUp:
		return nil
	case w.tty:
		_, err := fmt.Fprint(w.out, "\x1b[H\x1b[2J")
		return errors.Join(err, w.tree(w.whole()))
	case m.GetCaughtUp():
		return w.tree(w.whole())
	}
	return w.changes(m)
}

// whole returns the state with all objects.
func (w *treeWatch) whole() *modelv1.LiveState {
	s := &modelv1.LiveState{Health: w.head.GetHealth(), IncompleteReason: w.head.GetIncompleteReason()}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		s.Objects = append(s.Objects, w.objects[key])
	}
	return s
}

// changes writes what a message has changed.
func (w *treeWatch) changes(m *controlv1.WatchLiveStateResponse) error {
	at, health := w.printer.now.UTC().Format(time.TimeOnly), colored(cmp.Or(word(m.GetState().GetHealth(), "HEALTH_"), "UNKNOWN"))
	errs := []error{w.linef("%s  %s%s", at, w.paint(health.color, health.text), because(clean(m.GetState().GetIncompleteReason())))}
	for _, r := range m.GetRemoved() {
		errs = append(errs, w.linef("%s  %s %s is gone", at, clean(r.GetKind()), clean(objectName(r))))
	}
	if objects := m.GetState().GetObjects(); len(objects) > 0 {
		errs = append(errs, w.branches(objects).write(w.screen))
	}
	return errors.Join(errs...)
}

// objectKey identifies an object, and sorts by kind.
func objectKey(r *modelv1.ObjectRef) string {
	return strings.Join([]string{r.GetKind(), r.GetNamespace(), r.GetName(), r.GetGroup(), r.GetCluster()}, "/")
}
