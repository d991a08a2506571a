package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// BenchmarkTransition is one move of a running deployment's stage.
func BenchmarkTransition(b *testing.B) {
	s := storetest.New(b, nil)
	deployments(b, s, 1)
	start(b, s, "d0")
	b.ResetTimer()
	for i := range b.N {
		if _, err := s.UpdateDeployment(b.Context(), "d0", func(d *deploy.Deployment) error {
			d.Stages[0].Metadata = map[string]string{"step": fmt.Sprint(i)}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListDeployments reads a page of 50 out of 10,000.
func BenchmarkListDeployments(b *testing.B) {
	s := storetest.New(b, nil)
	deployments(b, s, 10_000)
	for name, q := range map[string]store.DeploymentQuery{
		"all":         {Limit: 50},
		"application": {Limit: 50, ApplicationIDs: []string{"a7"}},
		"label":       {Limit: 50, Labels: map[string]string{"app": "a7"}},
		"scope-rare":  {Limit: 50, Scope: &deploy.Scope{Alternatives: [][]deploy.Selector{{{Labels: map[string]string{"app": "a7"}}}}}},
		"scope-wide":  {Limit: 50, Scope: &deploy.Scope{Alternatives: [][]deploy.Selector{{{Labels: map[string]string{"team": "core"}}}}}},
		"status":      {Limit: 50, Statuses: []deploy.Status{deploy.Success, deploy.Failure}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := s.ListDeployments(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// deployments creates deployments of 20 applications.
func deployments(b *testing.B, s *store.Store, n int) {
	b.Helper()
	for i := range 20 {
		id := fmt.Sprint("a", i)
		if _, err := s.PutApplication(b.Context(), deploy.Application{ID: id, Name: id, Kind: deploy.KindKubernetes, Labels: map[string]string{"app": id, "team": "core"}}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		app := fmt.Sprint("a", i%20)
		d := deploy.Deployment{ID: fmt.Sprint("d", i), ApplicationID: app, ApplicationName: app, Status: deploy.Pending, Labels: map[string]string{"app": app}}
		if _, err := s.CreateDeployment(b.Context(), store.NewDeployment{Deployment: d}); err != nil {
			b.Fatal(err)
		}
	}
}

// start brings a deployment to RUNNING with a few stages.
func start(b *testing.B, s *store.Store, id string) {
	b.Helper()
	plan := deploy.Plan{}
	for i := range 5 {
		plan.Stages = append(plan.Stages, deploy.Stage{ID: fmt.Sprint("s", i), Name: deploy.StageK8sSync})
	}
	for _, fn := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error { return d.Plan(plan, time.Now()) },
		func(d *deploy.Deployment) error { return d.Start(time.Now()) },
	} {
		if _, err := s.UpdateDeployment(b.Context(), id, fn); err != nil {
			b.Fatal(err)
		}
	}
}
