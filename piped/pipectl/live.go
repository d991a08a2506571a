package pipectl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationResources(t *tool) *cobra.Command {
	req := &controlv1.GetLiveStateRequest{}
	cmd := &cobra.Command{
		Use:   "resources",
		Short: "Show the live objects of an application with their health.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.LiveState, error) {
				resp, err := c.control.GetLiveState(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the live state", err))
				}
				return resp.GetLiveState(), nil
			}, (*printer).liveState)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	flags.BoolVar(&req.Children, "children", false, "Also show what the objects created: ReplicaSets, Pods, Jobs.")
	return required(cmd, "app-id")
}

func (p *printer) liveState(s *modelv1.LiveState) error {
	t := newTable(fixed("KIND"), fixed("NAMESPACE"), fixed("NAME"), fixed("VARIANT"), fixed("HEALTH"), fixed("READY"), fixed("AGE"), flexible("REASON"))
	for _, o := range s.GetObjects() {
		p.liveObject(t, o, "")
	}
	if len(t.rows) == 0 {
		return p.linef("No objects.")
	}
	return errors.Join(
		p.fields(field{"Health", colored(word(s.GetHealth(), "HEALTH_"))},
			field{"Incomplete", cell{text: s.GetIncompleteReason(), color: yellow}}),
		p.section("Objects", t))
}

// liveObject adds an object and, indented, its children.
func (p *printer) liveObject(t *table, o *modelv1.LiveObject, indent string) {
	ref := o.GetObject()
	t.add(indent+ref.GetKind(), ref.GetNamespace(), ref.GetName(), o.GetVariant(), colored(word(o.GetHealth(), "HEALTH_")), ready(o), p.age(o.GetCreatedAtMs()), o.GetHealthReason())
	for _, child := range o.GetChildren() {
		p.liveObject(t, child, indent+"  ")
	}
	if n := o.GetChildrenLeftOut(); n > 0 {
		t.add(fmt.Sprintf("%s  and %d more", indent, n), " ", " ", " ", " ", " ", " ", " ")
	}
}

// ready returns the available and the desired replicas of an object; "" without any.
func ready(o *modelv1.LiveObject) string {
	if o.GetReplicas() == 0 && o.GetAvailableReplicas() == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", o.GetAvailableReplicas(), o.GetReplicas())
}
