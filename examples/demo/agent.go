package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// agent is the running agent, with a client of its control API.
type agent struct {
	*agenttest.Agent
	bin     string
	started time.Time
	timeout time.Duration // of what the client waits for
}

const keysText = `  secretManagement:
    type: KEY_PAIR
    config:
      privateKeyFile: %q
      publicKeyFile: %q
  sops:
    ageIdentityFile: %q
`

// startAgent writes the agent's configuration below dir, starts it and returns
// when its control API answers. Keys is the folder with the keys to decrypt
// secrets with, hostURL the API of the Git host. With tofu, applications of OpenTofu are deployed, too.
func startAgent(ctx context.Context, bin, dir, provider, kubeconfig, namespace, remote, hostURL, keys string, tofu bool) (*agent, error) {
	a := &agent{bin: bin, started: time.Now()}
	more := fmt.Sprintf(keysText, filepath.Join(keys, "example-only.private.pem"), filepath.Join(keys, "example-only.public.pem"), filepath.Join(keys, "example-only.age.txt"))
	more += fmt.Sprintf(hostText, hostURL, githosttest.Token, namespace+previewsBelow)
	if tofu {
		more += fmt.Sprintf(tofuProvider, filepath.Join(bin, "tofu"))
	}
	var err error
	a.Agent, err = agenttest.Start(ctx, agenttest.Options{
		Binary: filepath.Join(bin, "piped"), Dir: dir, Remote: remote, Kubeconfig: kubeconfig, Provider: provider, Interval: time.Second, WatchIn: namespace,
		More: more,
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// applications returns the agent's applications by name, once there are count.
func (a *agent) applications(ctx context.Context, count int) ([]*modelv1.Application, error) {
	var apps []*modelv1.Application
	err := a.Await(ctx, fmt.Sprintf("%d applications to be found", count), waitTimeout, func(ctx context.Context) (bool, error) {
		resp, err := a.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
		apps = resp.GetApplications()
		return len(apps) >= count, err
	})
	slices.SortFunc(apps, func(x, y *modelv1.Application) int { return strings.Compare(x.Name, y.Name) })
	return apps, err
}

// pipectl runs the client as a person would, and shows both.
func (a *agent) pipectl(ctx context.Context, to *narrator, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	to.command("pipectl " + strings.Join(args, " ") + " \\\n       " + strings.Join(a.pipectlFlags(), " "))
	args = append(args, a.pipectlFlags()...)
	out, err := exec.CommandContext(ctx, filepath.Join(a.bin, "pipectl"), args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		to.output(strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return fmt.Errorf("pipectl %s: %w; the agent's log: %s", strings.Join(args, " "), err, a.LogFile)
	}
	return nil
}

// pipectlFlags are what each call of pipectl needs.
func (a *agent) pipectlFlags() []string {
	return []string{"--address", a.Address, "--api-key-file", a.KeyFile, "--insecure"}
}
