package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// fleet is a number of applications of the same shape.
type fleet struct {
	dir       string // of all of them in the repository
	namespace string
	count     int
	replicas  int
	provider  string // platform provider; "" is the only one
	template  string // of an application's objects: name, namespace, replicas, tag
}

// web is the template of a Deployment, a Service and a ConfigMap.
const web = objects

// scaled is the template of a Deployment, a Service, a ServiceAccount and an
// Ingress.
const scaled = `apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  rules:
    - host: %[1]s.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: 80}}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {serviceAccountName: %[1]s, containers: [{name: web, image: "registry.example/web:%[4]s"}]}
`

// in returns the fleet in another namespace.
func (f fleet) in(namespace string) fleet {
	f.namespace = namespace
	return f
}

func (f fleet) name(i int) string { return fmt.Sprintf("app-%04d", i) }

// text returns the objects of an application.
func (f fleet) text(i int, tag string) string {
	return fmt.Sprintf(f.template, f.name(i), f.namespace, f.replicas, tag)
}

// files returns the files of all applications, with a comment in each.
func (f fleet) files(tag, comment string) map[string]string {
	all := map[string]string{}
	for i := range f.count {
		maps.Copy(all, f.filesOf(i, tag, comment))
	}
	return all
}

// config returns the configuration of an application.
func (f fleet) config(i int) string {
	if f.provider != "" {
		return fmt.Sprintf(providerConfig, f.name(i), f.provider)
	}
	return fmt.Sprintf(applicationConfig, f.name(i))
}

func (f fleet) filesOf(i int, tag, comment string) map[string]string {
	dir := filepath.Join(f.dir, f.name(i))
	return map[string]string{
		filepath.Join(dir, "app.pipecd.yaml"): f.config(i),
		filepath.Join(dir, "objects.yaml"):    "# " + comment + "\n" + f.text(i, tag),
	}
}

// objects returns the objects of each application as the reference runs send them.
func (f fleet) objects(tag string) ([][]*unstructured.Unstructured, error) {
	all := make([][]*unstructured.Unstructured, f.count)
	for i := range all {
		for document := range strings.SplitSeq(f.text(i, tag), "---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), u); err != nil {
				return nil, err
			}
			all[i] = append(all[i], u)
		}
	}
	return all, nil
}

// passage is one commit's way through the agent.
type passage struct {
	took        time.Duration // from the push to the end of the last deployment
	cpu         time.Duration // the agent used
	deployments []*modelv1.Deployment
}

// pass pushes files and returns when the commit's n deployments have succeeded.
func (s *scene) pass(ctx context.Context, message string, files map[string]string, n int) (passage, error) {
	var p passage
	if err := s.repo.Write(files); err != nil {
		return p, err
	}
	before, err := cpuTime(s.agent.PID())
	if err != nil {
		return p, err
	}
	commit, err := s.repo.Commit(message)
	began := time.Now() // the commit is there for the agent to see a moment before
	if err != nil {
		return p, err
	}
	if p.deployments, err = s.ended(ctx, commit, n); err != nil {
		return p, err
	}
	after, err := cpuTime(s.agent.PID())
	if err != nil {
		return p, err
	}
	p.cpu, p.took = after-before, latest(p.deployments, completed).Sub(began)
	for _, d := range p.deployments {
		if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
			return p, fmt.Errorf("commit %q: a deployment of %s ended as %s: %s", message, d.GetApplicationName(), d.GetStatus(), d.GetStatusReason())
		}
	}
	return p, nil
}

// ended returns the n deployments of a commit once all of them have ended. It asks
// seldom and for little: answers cost what is measured.
func (s *scene) ended(ctx context.Context, commit string, n int) (found []*modelv1.Deployment, err error) {
	open := &apiservice.ListDeploymentsRequest{Limit: 1, Statuses: []string{
		modelv1.DeploymentStatus_DEPLOYMENT_PENDING.String(), modelv1.DeploymentStatus_DEPLOYMENT_PLANNED.String(),
		modelv1.DeploymentStatus_DEPLOYMENT_RUNNING.String(), modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK.String(),
	}}
	over := []modelv1.DeploymentStatus{
		modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED,
	}
	err = s.agent.Await(ctx, fmt.Sprintf("%d deployments of commit %s to end", n, commit), 10*time.Minute, func(ctx context.Context) (bool, error) {
		time.Sleep(200*time.Millisecond + time.Duration(n)*time.Millisecond)
		answer, err := s.agent.API.ListDeployments(ctx, open)
		if err != nil || len(answer.GetDeployments()) > 0 {
			return false, err
		}
		found, err = s.deploymentsOf(ctx, commit, n, over)
		return len(found) == n, err
	})
	return found, err
}

// stageEnds returns when the stage of each application's deployment ended.
func stageEnds(deployments []*modelv1.Deployment) map[string]time.Time {
	ends := map[string]time.Time{}
	for _, d := range deployments {
		ends[d.GetApplicationName()] = time.UnixMilli(d.GetStages()[0].GetCompletedAtMs())
	}
	return ends
}
