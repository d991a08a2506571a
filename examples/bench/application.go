package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// patience bounds each wait.
const patience = 3 * time.Minute

const applicationConfig = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec: {name: %s}
`

// objects are an application's: a Deployment, a Service and a ConfigMap.
const objects = `apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: %[2]s}
data: {greeting: hello}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "registry.example/web:%[4]s"}]}
`

// files returns an application's files in the directory name.
func files(name, namespace string, replicas int, tag string) map[string]string {
	return map[string]string{
		name + "/app.pipecd.yaml": fmt.Sprintf(applicationConfig, name),
		name + "/objects.yaml":    fmt.Sprintf(objects, name, namespace, replicas, tag),
	}
}

func appID(dir string) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"})
}

// scene is a repository and an agent that follows it.
type scene struct {
	repo  *gittest.Repo
	agent *agenttest.Agent
}

// newScene makes a scene below the environment's directory. What o leaves out is
// the scene's own repository and the environment's cluster.
func (e *environment) newScene(ctx context.Context, name string, o agenttest.Options) (*scene, error) {
	repo, err := e.newRepo(name)
	if err != nil {
		return nil, err
	}
	s := &scene{repo: repo}
	s.agent, err = e.start(ctx, name, repo, o)
	return s, err
}

// newRepo makes a repository with one commit.
func (e *environment) newRepo(name string) (*gittest.Repo, error) {
	repo, err := gittest.NewRepo(filepath.Join(e.dir, name, "repo.git"))
	if err != nil {
		return nil, err
	}
	if err := repo.Write(map[string]string{"README.md": name}); err != nil {
		return nil, err
	}
	_, err = repo.Commit("begin")
	return repo, err
}

// start starts an agent that follows repo.
func (e *environment) start(ctx context.Context, name string, repo *gittest.Repo, o agenttest.Options) (*agenttest.Agent, error) {
	o.Binary, o.Dir = e.piped, filepath.Join(e.dir, name)
	if o.Remote == "" {
		o.Remote = repo.Dir
	}
	if o.Kubeconfig == "" {
		o.Kubeconfig = e.cluster.Kubeconfig()
	}
	return agenttest.Start(ctx, o)
}

// push commits files and returns the commit.
func (s *scene) push(message string, files map[string]string) (string, error) {
	if err := s.repo.Write(files); err != nil {
		return "", err
	}
	return s.repo.Commit(message)
}

// succeeded returns the deployment of a commit once it is a success.
func (s *scene) succeeded(ctx context.Context, app, commit string) (*modelv1.Deployment, error) {
	var found *modelv1.Deployment
	err := s.agent.Await(ctx, "the deployment of commit "+commit, patience, func(ctx context.Context) (bool, error) {
		resp, err := s.agent.API.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{ApplicationIds: []string{app}, Limit: 5})
		if err != nil {
			return false, err
		}
		for _, d := range resp.GetDeployments() {
			if d.GetTrigger().GetCommit().GetHash() == commit && d.GetCompletedAtMs() > 0 {
				found = d
			}
		}
		return found != nil, nil
	})
	if err == nil && found.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
		return nil, fmt.Errorf("deployment of commit %s ended as %s: %s", commit, found.GetStatus(), found.GetStatusReason())
	}
	return found, err
}
