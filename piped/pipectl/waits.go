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

// result is how a deployment is, its commit and how long ago it ended, or was created.
func (p *printer) result(d *modelv1.ApplicationDeployment) cell {
	if d == nil {
		return cell{}
	}
	c := deploymentStatus(d.GetStatus())
	c.text = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.text, shortHash(d.GetCommit()), p.age(cmp.Or(d.GetCompletedAtMs(), d.GetCreatedAtMs()))))
	return c
}

// waits says what a deployment waits for and since when, such as "1 approval of jane,
// since 22s"; "" if it does not.
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

// lastDeployment is the ID of an application's last deployment and how that is.
func (p *printer) lastDeployment(a *modelv1.Application) cell {
	c := p.result(a.GetLastDeployment())
	c.text = strings.TrimSpace(a.GetMostRecentlyTriggeredDeployment().GetDeploymentId() + " " + c.text)
	return c
}

// lastFailure is an application's last deployment that failed, and why. One that was
// followed by a success is no alarm.
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

// liveOf returns the live state of an application; one that cannot be read has no health
// and says why. It is nil if the agent does not have it.
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

// health is that of an application, with the first object that is as bad and why.
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

// images are those of the live objects, each once.
func images(s *modelv1.LiveState) string {
	var out []string
	for _, o := range s.GetObjects() {
		out = append(out, o.GetImages()...)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}
