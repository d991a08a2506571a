package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	thousand          = 1000
	thousandNamespace = "bench-thousand"
	thousandLimit     = 8 // deployments at once
)

// measureThousand deploys 1,000 applications of one repository, then pushes one
// commit that touches them all while the cluster is silent: what is measured is
// how long it takes, and what it costs, until all are planned.
func measureThousand(ctx context.Context, e *environment) (err error) {
	if _, err := e.client(ctx, thousandNamespace); err != nil {
		return err
	}
	proxy, err := agenttest.ServeAPI(e.cluster.Kubeconfig(), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	kubeconfig, err := proxy.Kubeconfig(e.dir)
	if err != nil {
		return err
	}
	repo, err := e.newRepo("thousand")
	if err != nil {
		return err
	}
	remote, err := gittest.ServeHTTP(repo.Dir, gittest.HTTPOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remote.Close()) }()
	agent, err := e.start(ctx, "thousand", repo, agenttest.Options{
		Interval: 200 * time.Millisecond, Remote: remote.URL, Kubeconfig: kubeconfig, Limit: thousandLimit,
	})
	if err != nil {
		return err
	}
	defer agent.Close()
	s := &scene{repo: repo, agent: agent}
	if err := s.deployThousand(ctx, e); err != nil {
		return err
	}
	if err := agent.Stop(); err != nil { // the peak of memory begins anew
		return err
	}
	if err := agent.Restart(ctx); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // what the start causes is over
	proxy.Silence()
	defer proxy.Speak()
	return s.planThousand(ctx, e, remote)
}

// deployThousand deploys the first commit of all applications.
func (s *scene) deployThousand(ctx context.Context, e *environment) error {
	began := time.Now()
	commit, err := s.push("all", thousandFiles("one"))
	if err != nil {
		return err
	}
	deployed, err := s.awaitThousand(ctx, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if err != nil {
		return err
	}
	peak, err := memory(s.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	e.info("thousand.deployed_for_the_first_time", seconds(latest(deployed, completed).Sub(began)), "s")
	e.info("thousand.peak_rss_while_deploying", peak, "MiB")
	return nil
}

// planThousand measures a commit that touches all applications.
func (s *scene) planThousand(ctx context.Context, e *environment, remote *gittest.HTTPServer) error {
	packs, began := remote.Packs(), time.Now()
	commit, err := s.push("all again", thousandFiles("two"))
	if err != nil {
		return err
	}
	pushed := time.Now()
	planned, err := s.awaitThousand(ctx, commit, modelv1.DeploymentStatus_DEPLOYMENT_PLANNED, modelv1.DeploymentStatus_DEPLOYMENT_RUNNING)
	if err != nil {
		return err
	}
	peak, err := memory(s.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	var end time.Time
	for _, d := range planned {
		at, err := s.plannedAt(ctx, d.GetId())
		if err != nil {
			return err
		}
		if at.After(end) {
			end = at
		}
	}
	e.info("thousand.push", seconds(pushed.Sub(began)), "s")
	e.info("thousand.pushed_to_all_pending", seconds(latest(planned, created).Sub(pushed)), "s")
	e.info("thousand.pushed_to_all_planned", seconds(end.Sub(pushed)), "s")
	e.atMost("thousand.fetches", float64(remote.Packs()-packs), "", 1)
	e.atMost("thousand.peak_rss", peak, "MiB", 150)
	return nil
}

// thousandFiles are applications of one ConfigMap each.
func thousandFiles(greeting string) map[string]string {
	all := map[string]string{}
	for i := range thousand {
		name := fmt.Sprintf("app-%04d", i)
		maps.Copy(all, map[string]string{
			filepath.Join(name, "app.pipecd.yaml"): fmt.Sprintf(applicationConfig, name),
			filepath.Join(name, "objects.yaml"): fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: %s}
data: {greeting: %s}
`, name, thousandNamespace, greeting),
		})
	}
	return all
}

// awaitThousand returns the deployments of a commit once there is one of each
// application, all in one of the statuses. It asks seldom and for small pages:
// answers cost what is measured.
func (s *scene) awaitThousand(ctx context.Context, commit string, statuses ...modelv1.DeploymentStatus) ([]*modelv1.Deployment, error) {
	var found []*modelv1.Deployment
	err := s.agent.Await(ctx, fmt.Sprintf("%d deployments of commit %s", thousand, commit), 10*time.Minute, func(ctx context.Context) (bool, error) {
		time.Sleep(time.Second)
		var err error
		if found, err = s.deploymentsOf(ctx, commit, thousand, statuses); err != nil {
			return false, err
		}
		return len(found) == thousand, fmt.Errorf("%d so far", len(found))
	})
	return found, err
}

// deploymentsOf returns the deployments of a commit in some statuses, n at most.
// They are the ones updated last: no older page is asked for than is needed.
func (s *scene) deploymentsOf(ctx context.Context, commit string, n int, statuses []modelv1.DeploymentStatus) ([]*modelv1.Deployment, error) {
	request := &apiservice.ListDeploymentsRequest{Limit: 100}
	for _, status := range statuses {
		request.Statuses = append(request.Statuses, status.String())
	}
	var found []*modelv1.Deployment
	for {
		response, err := s.agent.API.ListDeployments(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, d := range response.GetDeployments() {
			if d.GetTrigger().GetCommit().GetHash() == commit {
				found = append(found, d)
			}
		}
		if request.Cursor = response.GetCursor(); request.Cursor == "" || len(found) >= n {
			return found, nil
		}
	}
}

// plannedAt returns when a deployment became PLANNED.
func (s *scene) plannedAt(ctx context.Context, id string) (time.Time, error) {
	response, err := s.agent.API.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range response.GetDeployment().GetTransitions() {
		if m.GetStageId() == "" && m.GetTo() == modelv1.DeploymentStatus_DEPLOYMENT_PLANNED.String() {
			return time.UnixMilli(m.GetAtMs()), nil
		}
	}
	return time.Time{}, fmt.Errorf("deployment %s was never planned", id)
}

func created(d *modelv1.Deployment) time.Time   { return time.UnixMilli(d.GetCreatedAtMs()) }
func completed(d *modelv1.Deployment) time.Time { return time.UnixMilli(d.GetCompletedAtMs()) }

// latest returns the latest of the deployments' times.
func latest(deployments []*modelv1.Deployment, at func(*modelv1.Deployment) time.Time) time.Time {
	var last time.Time
	for _, d := range deployments {
		if t := at(d); t.After(last) {
			last = t
		}
	}
	return last
}

func seconds(d time.Duration) float64 { return d.Seconds() }
