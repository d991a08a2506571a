package notify

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// about returns a notice about the application web, or about the agent for its events.
func about(kind deploy.EventType, labels map[string]string) Notice {
	n := Notice{Event: deploy.Event{Type: kind}}
	if kind.Group() != deploy.GroupPiped {
		n.Application = &deploy.Application{Name: "web", Labels: labels}
	}
	return n
}

func TestRoutes(t *testing.T) {
	prod := map[string]string{"env": "prod", "team": "a"}
	failed, started := about(deploy.EventFailed, prod), about(deploy.EventPipedStarted, nil)
	preview := about(deploy.EventFailed, prod)
	preview.Application.Git.PullRequest = 7
	ofDeployment := preview
	ofDeployment.Application, ofDeployment.Deployment = nil, &deploy.Deployment{Git: deploy.GitPath{PullRequest: 7}}
	for name, c := range map[string]struct {
		route Route
		n     Notice
		want  bool
	}{
		"a route without conditions":           {Route{}, failed, true},
		"a preview":                            {Route{}, preview, false},
		"a deployment of a preview":            {Route{Groups: []deploy.EventGroup{deploy.GroupDeployment}}, ofDeployment, false},
		"a preview by a name":                  {Route{Apps: []string{"web"}}, preview, false},
		"a preview as well":                    {Route{Previews: true}, preview, true},
		"others with previews as well":         {Route{Previews: true}, failed, true},
		"only previews":                        {Route{OnlyPreviews: true}, ofDeployment, true},
		"others with only previews":            {Route{OnlyPreviews: true}, failed, false},
		"the agent with only previews":         {Route{OnlyPreviews: true}, started, false},
		"by name":                              {Route{Events: []deploy.EventType{deploy.EventFailed}}, failed, true},
		"by another name":                      {Route{Events: []deploy.EventType{deploy.EventSucceeded}}, failed, false},
		"by group":                             {Route{Groups: []deploy.EventGroup{deploy.GroupDeployment}}, failed, true},
		"a name and a group must both hold":    {Route{Events: []deploy.EventType{deploy.EventFailed}, Groups: []deploy.EventGroup{deploy.GroupStage}}, failed, false},
		"an ignored name":                      {Route{Groups: []deploy.EventGroup{deploy.GroupDeployment}, IgnoreEvents: []deploy.EventType{deploy.EventFailed}}, failed, false},
		"an ignored group":                     {Route{IgnoreGroups: []deploy.EventGroup{deploy.GroupDeployment}}, failed, false},
		"by application":                       {Route{Apps: []string{"api", "web"}}, failed, true},
		"by another application":               {Route{Apps: []string{"api"}}, failed, false},
		"an ignored application":               {Route{IgnoreApps: []string{"web"}}, failed, false},
		"all labels":                           {Route{Labels: prod}, failed, true},
		"one label of two":                     {Route{Labels: map[string]string{"env": "prod", "team": "b"}}, failed, false},
		"one ignored label of two":             {Route{IgnoreLabels: map[string]string{"env": "test", "team": "a"}}, failed, false},
		"ignored labels it does not have":      {Route{IgnoreLabels: map[string]string{"env": "test"}}, failed, true},
		"no labels pass those asked for":       {Route{Labels: prod}, about(deploy.EventFailed, nil), true},
		"the agent passes all of applications": {Route{Apps: []string{"api"}, Labels: prod, IgnoreApps: []string{"web"}}, started, true},
		"the agent's group":                    {Route{Groups: []deploy.EventGroup{deploy.GroupPiped}}, started, true},
		"our own event, not asked for":         {Route{Apps: []string{"web"}}, about(deploy.EventRolloutEnded, prod), false},
		"our own event, by name":               {Route{Events: []deploy.EventType{deploy.EventSelfHealStopped}}, about(deploy.EventSelfHealStopped, prod), true},
		"our own event, by group":              {Route{Groups: []deploy.EventGroup{deploy.GroupRollout}}, about(deploy.EventRolloutEnded, prod), true},
		"our own event, ignored":               {Route{Groups: []deploy.EventGroup{deploy.GroupRollout}, IgnoreEvents: []deploy.EventType{deploy.EventRolloutEnded}}, about(deploy.EventRolloutEnded, prod), false},
		"PipeCD's event that it never sends":   {Route{}, about(deploy.EventOutOfSync, prod), true},
		"an internal event":                    {Route{}, about(deploy.EventPlanPreviewed, prod), false},
	} {
		if got := c.route.Matches(c.n); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRoutedOnce: a receiver wants a notice that matches any of its routes.
func TestRoutedOnce(t *testing.T) {
	r := Routed("hook", &fake{}, Route{Events: []deploy.EventType{deploy.EventFailed}}, Route{Groups: []deploy.EventGroup{deploy.GroupStage}})
	for kind, want := range map[deploy.EventType]bool{deploy.EventFailed: true, deploy.EventStageFailed: true, deploy.EventSucceeded: false} {
		if got := r.Wants(t.Context(), about(kind, nil)); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	if Routed("idle", &fake{}).Wants(t.Context(), about(deploy.EventFailed, nil)) {
		t.Error("a receiver without routes wants something")
	}
}

func TestGroupsFollowTheNumbers(t *testing.T) {
	got := map[deploy.EventGroup][]deploy.EventType{}
	for _, kind := range deploy.EventTypes() {
		if kind.IsExtension() {
			got["own"] = append(got["own"], kind)
		}
		got[kind.Group()] = append(got[kind.Group()], kind)
	}
	want := map[deploy.EventGroup][]deploy.EventType{
		deploy.GroupDeployment: {
			deploy.EventTriggered, deploy.EventPlanned, deploy.EventApproved, deploy.EventRollingBack, deploy.EventSucceeded,
			deploy.EventFailed, deploy.EventCancelled, deploy.EventWaitApproval, deploy.EventTriggerFailed, deploy.EventStarted,
		},
		deploy.GroupApplicationSync:   {deploy.EventSynced, deploy.EventOutOfSync, deploy.EventReleased, deploy.EventHeld, deploy.EventSelfHealStopped},
		deploy.GroupApplicationHealth: {deploy.EventHealthy, deploy.EventDegraded},
		deploy.GroupPiped:             {deploy.EventPipedStarted, deploy.EventPipedStopped},
		deploy.GroupStage: {
			deploy.EventStageStarted, deploy.EventStageSkipped, deploy.EventStageSucceeded, deploy.EventStageFailed, deploy.EventStageCancelled,
		},
		deploy.GroupRollout: {deploy.EventRolloutEnded, deploy.EventScalingEnded, deploy.EventRolloutStarted, deploy.EventRolloutRecovered},
		"own": {
			deploy.EventReleased, deploy.EventHeld, deploy.EventSelfHealStopped, deploy.EventDegraded,
			deploy.EventRolloutEnded, deploy.EventScalingEnded, deploy.EventRolloutStarted, deploy.EventRolloutRecovered,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRoutesOfForeignWorkloads: a route that names applications or labels gets no rollouts of
// workloads without an application. Without a rollout there is no end of one.
func TestRoutesOfForeignWorkloads(t *testing.T) {
	prod, rollouts := map[string]string{"env": "prod"}, []deploy.EventGroup{deploy.GroupRollout}
	foreign := func(kind deploy.EventType) Notice {
		return Notice{Event: deploy.Event{Type: kind}, Details: deploy.EventPayload{Workload: &deploy.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "web"}}}
	}
	for name, c := range map[string]struct {
		route Route
		want  bool
	}{
		"not asked for":                {Route{}, false},
		"by group":                     {Route{Groups: rollouts}, true},
		"of applications":              {Route{Groups: rollouts, Apps: []string{"web"}}, false},
		"of labels":                    {Route{Groups: rollouts, Labels: prod}, false},
		"not of an application":        {Route{Groups: rollouts, IgnoreApps: []string{"web"}}, true},
		"not of a label":               {Route{Groups: rollouts, IgnoreLabels: prod}, true},
		"of applications, all of them": {Route{Groups: append(rollouts, deploy.GroupPiped), Apps: []string{"web"}}, false},
	} {
		for _, kind := range []deploy.EventType{deploy.EventRolloutStarted, deploy.EventRolloutEnded, deploy.EventScalingEnded} {
			if got := c.route.Matches(foreign(kind)); got != c.want {
				t.Errorf("%s %s: %v, want %v", kind, name, got, c.want)
			}
		}
	}
	for _, n := range []Notice{foreign(deploy.EventRolloutEnded), about(deploy.EventRolloutEnded, prod)} {
		n.Details.Phase = deploy.RolloutNoRollout
		if (Route{Groups: rollouts}).Matches(n) {
			t.Errorf("the end of what was no rollout is sent: %+v", n)
		}
		n.Details.Phase = deploy.RolloutSuperseded
		if !(Route{Groups: rollouts}).Matches(n) {
			t.Errorf("the end of a rollout is not sent: %+v", n)
		}
	}
	ofApplication := foreign(deploy.EventRolloutEnded)
	ofApplication.Details.Application = "web" // which is not stored any longer
	if !(Route{Groups: rollouts, Apps: []string{"web"}}).Matches(ofApplication) {
		t.Error("the rollout of an application that was removed is not sent")
	}
}

// TestOrderOfForeignWorkloads: each workload without an application has a queue of its own.
func TestOrderOfForeignWorkloads(t *testing.T) {
	notice := func(cluster, kind, namespace, name string) Notice {
		ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: kind, Namespace: namespace, Name: name}
		return Notice{Event: deploy.Event{Type: deploy.EventRolloutStarted}, Details: deploy.EventPayload{Cluster: cluster, Workload: &ref}}
	}
	web := notice("c", "Deployment", "shop", "web")
	orders := map[string]bool{about(deploy.EventPipedStarted, nil).Order(): true}
	for _, n := range []Notice{web, notice("d", "Deployment", "shop", "web"), notice("c", "StatefulSet", "shop", "web"), notice("c", "Deployment", "test", "web"), notice("c", "Deployment", "shop", "api")} {
		if orders[n.Order()] {
			t.Errorf("%+v is in the queue of another workload: %s", n.Details, n.Order())
		}
		orders[n.Order()] = true
	}
	ended := notice("c", "Deployment", "shop", "web")
	if ended.Event.Type = deploy.EventRolloutEnded; ended.Order() != web.Order() {
		t.Errorf("start and end of one workload are in the queues %s and %s", web.Order(), ended.Order())
	}
	web.Event.ApplicationID = "a"
	if got := web.Order(); got != "application/a" {
		t.Errorf("the queue of an application's workload is %s", got)
	}
}
