package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	stages "sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwokclient "sigs.k8s.io/kwok/pkg/utils/client"
)

// runKwok runs the node simulation, and the kubelet of all nodes next to it. It
// uses kwok's controllers without kwok's command, whose configuration loader
// compiles all of kustomize and reads the home directory of the user.
func runKwok(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return errors.New("kwok takes its port, its certificate and key, the file of the stages and a kubeconfig")
	}
	cert, err := tls.LoadX509KeyPair(args[1], args[2])
	if err != nil {
		return fmt.Errorf("reading the nodes' certificate: %w", err)
	}
	transitions, err := readStages(args[3])
	if err != nil {
		return err
	}
	ctx = kwoklog.NewContext(ctx, kwoklog.NewLogger(os.Stderr, kwoklog.LevelInfo))
	server := &http.Server{Handler: kubelet(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	return serve(ctx, args[0], server, func(ctx context.Context) error { return simulate(ctx, args[4], transitions) })
}

// stagesByKind are the transitions of each kind of object.
type stagesByKind map[stages.StageResourceRef][]*stages.Stage

// readStages reads the stages that writeStages wrote.
func readStages(file string) (stagesByKind, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening the stages: %w", err)
	}
	defer f.Close()
	all := stagesByKind{}
	for docs := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var doc v1alpha1.Stage
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the stages in %s: %w", file, err)
		}
		stage, err := stages.ConvertToInternalStage(&doc)
		if err != nil {
			return nil, fmt.Errorf("reading stage %s in %s: %w", doc.Name, file, err)
		}
		all[stage.Spec.ResourceRef] = append(all[stage.Spec.ResourceRef], stage)
	}
}

// simulate plays the annotated nodes and their pods until ctx ends.
func simulate(ctx context.Context, kubeconfig string, transitions stagesByKind) error {
	config, err := simulation(kubeconfig, transitions)
	if err != nil {
		return fmt.Errorf("making the clients of the node simulation: %w", err)
	}
	controller, err := controllers.NewController(config)
	if err != nil {
		return fmt.Errorf("making the node simulation: %w", err)
	}
	if err := controller.Start(ctx); err != nil {
		return fmt.Errorf("starting the node simulation: %w", err)
	}
	<-ctx.Done()
	return nil
}

// simulation is the configuration of the simulation: kwok's defaults, and no
// leases of nodes, as one simulation plays them all.
func simulation(kubeconfig string, transitions stagesByKind) (c controllers.Config, err error) {
	clients, err := kwokclient.NewClientset("", kubeconfig)
	if err != nil {
		return c, err
	}
	var config *rest.Config
	if config, err = clients.ToRESTConfig(); err != nil {
		return c, err
	}
	if c.DynamicClient, err = clients.ToDynamicClient(); err != nil {
		return c, err
	}
	if c.RESTMapper, err = clients.ToRESTMapper(); err != nil {
		return c, err
	}
	if c.RESTClient, err = rest.RESTClientFor(config); err != nil {
		return c, err
	}
	if c.TypedClient, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.ID, err = controllers.Identity(); err != nil {
		return c, err
	}
	c.ImpersonatingDynamicClient, c.ImpersonatingTypedClient = clients.ToImpersonatingDynamicClient(), clients.ToImpersonatingTypedClient()
	c.Clock, c.LocalStages = clock.RealClock{}, transitions
	c.ManageNodesWithAnnotationSelector, c.CIDR = fakeNodeKey+"=fake", "10.244.0.0/16"
	c.PodPlayStageParallelism, c.NodePlayStageParallelism = 4, 4
	c.PodsOnNodeSyncParallelism, c.EnablePodsOnNodeSyncListPager = 1, true
	return c, nil
}
