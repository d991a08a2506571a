// Demo shows the agent at work on one machine: a real Kubernetes control plane
// with simulated nodes, a local Git repository, the agent watching it, and the
// deployments that commits and a person cause. It prints what happens while it
// happens and checks that every deployment ends as it should.
//
// Everything it makes lives in one temporary folder, and the programs it starts
// end with it. With -kubeconfig it plays in somebody's own cluster instead, in a
// namespace that it makes and removes. It never touches another cluster, namespace or
// repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run plays the demo and returns its exit code: 0 if every deployment ended as
// it should, 1 if not, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout *os.File, stderr io.Writer) (code int) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "folder with the programs piped, pipectl, devcluster and tofu")
	apps := flags.String("apps", filepath.Join("examples", "apps"), "folder whose content becomes the Git repository")
	infrastructure := flags.String("infrastructure", filepath.Join("examples", "tofu", "apps", "approval"), "folder with the application of OpenTofu; it is not deployed with -kubeconfig")
	keys := flags.String("keys", filepath.Join("examples", "keys"), "folder with the keys to decrypt their secrets with")
	once := flags.Bool("once", false, "end after the script instead of staying up until Ctrl-C")
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig of an own cluster, whose current context is used; default: a control plane on this machine")
	image := flags.String("image", "registry.k8s.io/pause", "with -kubeconfig: the image that the pods run")
	tags := flags.String("tags", "3.6,3.7,3.8,3.9,3.10", "with -kubeconfig: five tags of the image, the first of which is deployed first")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	on, err := written, error(nil)
	if *kubeconfig != "" {
		if on, err = ownStage(*kubeconfig, *image, *tags); err != nil {
			fmt.Fprintln(stderr, "demo:", err)
			return 2
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	d, err := newDemo(*bin, *apps, *infrastructure, *keys, on, newNarrator(stdout))
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	keep := true // what is left after a panic is worth a look
	defer func() {
		if err := d.close(keep); err != nil {
			fmt.Fprintln(stderr, "demo:", err)
			code = 1
		}
	}()
	err = d.play(ctx)
	if err == nil && !*once {
		err = d.stayUp(ctx)
	}
	interrupted := ctx.Err() != nil
	keep = err != nil && !interrupted || len(d.differences) > 0
	if err != nil && !interrupted {
		fmt.Fprintln(stderr, "\ndemo:", err)
	}
	if err != nil || len(d.differences) > 0 {
		return 1
	}
	return 0
}
