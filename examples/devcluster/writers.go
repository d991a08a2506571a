package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// runWriters runs what stands in for programs a bare control plane lacks: the
// events of kubelets, the metrics pipeline below autoscalers, and a gateway.
func runWriters(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("writers take their port, a kubeconfig, a route status and its delay")
	}
	delay, err := time.ParseDuration(args[3])
	if err != nil {
		return fmt.Errorf("reading the route status delay: %w", err)
	}
	config, err := clientConfig(args[1])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a dynamic client: %w", err)
	}
	scaler, err := newScaleWriter(config, client)
	if err != nil {
		return err
	}
	return serveHealth(ctx, args[0], func(ctx context.Context) error {
		factory := informers.NewSharedInformerFactory(client, 0)
		var running sync.WaitGroup
		runs := []func(context.Context){
			newKubeletEvents(client, factory.Core().V1().Pods().Informer()).run,
			scaler.withInformer(factory).run,
		}
		for _, kind := range routeResources() {
			runs = append(runs, (&routeWriter{client: dyn, resource: kind, mode: args[2], delay: delay}).run)
		}
		for _, run := range runs {
			running.Go(func() { run(ctx) })
		}
		factory.StartWithContext(ctx)
		running.Wait()
		factory.Shutdown()
		return nil
	})
}
