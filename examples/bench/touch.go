package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
)

// phases are what a commit does to all applications, and the kinds of the objects
// it changes.
var phases = []struct {
	name  string
	kinds []string
}{
	{"create", []string{"ConfigMap", "Service", "Deployment"}},
	{"image", []string{"Deployment"}},
}

// took are the times of one phase, by way.
type took struct{ agent, cpu, kubectl, loop, plain []time.Duration }

// measureTouch measures one commit that touches all of n applications, from the
// push until all deployments have succeeded: first when it creates them, then when
// it changes their images. Beside it go the same objects applied and waited for as
// kubectl does, by a loop that does what the agent does, and by one that only
// applies.
func measureTouch(n, rounds int, cpu time.Duration) func(context.Context, *environment) error {
	return func(ctx context.Context, e *environment) error {
		t := &touch{environment: e, name: fmt.Sprintf("touch%d", n), all: make([]took, len(phases))}
		t.fleet = fleet{count: n, replicas: 1, template: web}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		defer t.agent.Close()
		for round := range rounds {
			if err := t.round(ctx, round); err != nil {
				return err
			}
		}
		for i, p := range phases {
			t.print(t.name+"."+p.name, t.all[i], cpu)
		}
		peak, err := memory(t.agent.PID(), "VmHWM")
		if err != nil {
			return err
		}
		e.info(t.name+".peak_rss", peak, "MiB")
		return t.agent.Close()
	}
}

// touch is one run of measureTouch.
type touch struct {
	*environment
	*scene
	*reference
	fleet fleet
	name  string
	all   []took // by phase
}

func (t *touch) prepare(ctx context.Context) (err error) {
	if t.reference, err = newReference(t.cluster.Kubeconfig()); err != nil {
		return err
	}
	t.scene, err = t.newScene(ctx, t.name, agenttest.Options{Interval: 50 * time.Millisecond})
	return err
}

// round sends a fresh fleet each way, one after the other.
func (t *touch) round(ctx context.Context, round int) error {
	prefix := fmt.Sprintf("bench-%s-%d", t.name, round)
	if _, err := t.client(ctx, prefix+"-agent", prefix+"-kubectl", prefix+"-loop", prefix+"-plain"); err != nil {
		return err
	}
	f := t.fleet
	f.dir = fmt.Sprintf("round-%d", round)
	for i, phase := range phases {
		tag, sample := fmt.Sprintf("v%d", i), &t.all[i]
		p, err := t.pass(ctx, fmt.Sprintf("%s %d", phase.name, round), f.in(prefix+"-agent").files(tag, tag), f.count)
		if err != nil {
			return err
		}
		kubectl, err := t.kubectl(ctx, f.in(prefix+"-kubectl"), tag)
		if err != nil {
			return err
		}
		loop, err := t.loop(ctx, f.in(prefix+"-loop"), tag, phase.kinds, false)
		if err != nil {
			return err
		}
		plain := sample.plain
		if round == 0 { // for information only
			alone, err := t.loop(ctx, f.in(prefix+"-plain"), tag, phase.kinds, true)
			if err != nil {
				return err
			}
			plain = append(plain, alone)
		}
		fmt.Fprintf(os.Stderr, "%s %s: agent %.2fs (cpu %.2fs) kubectl %.2fs loop %.2fs plain %.2fs\n", t.name, phase.name,
			seconds(p.took), seconds(p.cpu), seconds(kubectl), seconds(loop), seconds(median(plain)))
		sample.agent, sample.cpu = append(sample.agent, p.took), append(sample.cpu, p.cpu)
		sample.kubectl, sample.loop, sample.plain = append(sample.kubectl, kubectl), append(sample.loop, loop), plain
	}
	return nil
}

func (t *touch) print(name string, s took, cpu time.Duration) {
	t.info(name+".push_to_success.median", seconds(median(s.agent)), "s")
	t.info(name+".push_to_success.worst", seconds(worst(s.agent)), "s")
	t.info(name+".floor.kubectl.median", seconds(median(s.kubectl)), "s")
	t.info(name+".floor.loop.median", seconds(median(s.loop)), "s")
	t.info(name+".plain_apply", seconds(median(s.plain)), "s")
	t.ratio(name+".ratio_to_kubectl", ratioOf(s.agent, s.kubectl), 1, 1.5)
	t.ratio(name+".ratio_to_loop", ratioOf(s.agent, s.loop), 1, 1.3)
	t.atMost(name+".cpu.median", seconds(median(s.cpu)), "s", seconds(cpu))
	t.info(name+".cpu.worst", seconds(worst(s.cpu)), "s")
}
