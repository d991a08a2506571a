package pipectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// result describes the status of a deployment, its commit and how long ago it ended or
// was created.
func (p *printer) result(d *modelv1.ApplicationDeployment) cell {
	if d == nil {
		return cell{}
	}
	c := deploymentStatus(d.GetStatus())
	c.text = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.text, shortHash(d.GetCommit()), p.age(cmp.Or(d.GetCompletedAtMs(), d.GetCreatedAtMs()))))
	return c
}

// waits describes what a deployment waits for and since when, such as "1 approval of
// jane, since 22s"; "" for nothing.
func (p *printer) waits(w *modelv1.DeploymentWait) cell {
	if w == nil {
		return cell{}
	}
	c := cell{text: w.GetWaitsFor()}
	if since := p.age(w.GetSinceMs()); since != "" {
		c.text += ", since " + since
	}
	if w.GetApproval() {
		c.color = yellow
	}
	return c
}

// lastDeployment describes the ID and result of an application's last deployment.
func (p *printer) lastDeployment(a *modelv1.Application) cell {
	c := p.result(a.GetLastDeployment())
	c.text = strings.TrimSpace(a.GetMostRecentlyTriggeredDeployment().GetDeploymentId() + " " + c.text)
	return c
}

// lastFailure describes an application's last failed deployment and its reason, without
// alarm if a success followed.
func (p *printer) lastFailure(a *modelv1.Application) cell {
	f := a.GetLastFailure()
	if f == nil {
		return cell{}
	}
	c := p.result(f)
	c.text = f.GetDeploymentId() + " " + c.text + because(f.GetStatusReason())
	if success := a.GetMostRecentlySuccessfulDeployment(); success.GetStartedAt()*1000 > f.GetCreatedAtMs() {
		c.color = plain
	}
	return c
}

// liveOf returns the live state of an application. If it cannot be read, it has no
// health and explains why. It is nil if the agent does not have it.
func (c *client) liveOf(ctx context.Context, id string) *modelv1.LiveState {
	resp, err := c.control.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: id})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return &modelv1.LiveState{IncompleteReason: status.Convert(err).Message()}
	}
	return resp.GetLiveState()
}

// health describes the health of an application, with the first object that has it and
// the reason.
func health(s *modelv1.LiveState) cell {
	if s == nil || len(s.GetObjects()) == 0 && s.GetIncompleteReason() == "" {
		return cell{}
	}
	c := colored(cmp.Or(word(s.GetHealth(), "HEALTH_"), "UNKNOWN"))
	i := slices.IndexFunc(s.GetObjects(), func(o *modelv1.LiveObject) bool {
		return o.GetHealth() == s.GetHealth() && o.GetHealthReason() != ""
	})
	if i >= 0 {
		o := s.GetObjects()[i]
		c.text += ": " + o.GetObject().GetKind() + " " + objectName(o.GetObject()) + because(o.GetHealthReason())
	} else {
		c.text += because(s.GetIncompleteReason())
	}
	return c
}

// images returns the distinct images of the live objects.
func images(s *modelv1.LiveState) string {
	var out []string
	for _, o := range s.GetObjects() {
		out = append(out, o.GetImages()...)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}
