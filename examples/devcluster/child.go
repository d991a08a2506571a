package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// runComponent is the main of a child process. Kubernetes' own commands bring
// their signal handling; the others end when the process gets a signal.
func runComponent(ctx context.Context, name string, args []string, stderr io.Writer) int {
	switch name {
	case "apiserver":
		return runCommand(apiserver.NewAPIServerCommand(), args)
	case "controller-manager":
		return runCommand(controllermanager.NewControllerManagerCommand(), args)
	case "scheduler":
		return runCommand(scheduler.NewSchedulerCommand(), args)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := known(name)
	switch name {
	case "etcd":
		err = runEtcd(ctx, args)
	case "kwok":
		err = runKwok(ctx, args)
	case "writers":
		err = runWriters(ctx, args)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "component %s: %v\n", name, err)
		return 1
	}
	return 0
}

func runCommand(cmd *cobra.Command, args []string) int {
	cmd.SetArgs(args)
	return cli.Run(cmd)
}

// runEtcd runs a single member. It leaves out fsync: what is lost with it is
// lost only when the machine itself goes down, not when a process is killed.
func runEtcd(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("etcd takes its folder, client port and peer port")
	}
	client, err := url.Parse("http://127.0.0.1:" + args[1])
	if err != nil {
		return fmt.Errorf("reading the client port: %w", err)
	}
	peer, err := url.Parse("http://127.0.0.1:" + args[2])
	if err != nil {
		return fmt.Errorf("reading the peer port: %w", err)
	}
	config := embed.NewConfig()
	config.Name = "devcluster"
	config.Dir = args[0]
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("running etcd: %w", err)
	}
}

// serveHealth runs work next to an endpoint that answers for as long as it does.
func serveHealth(ctx context.Context, port string, work func(context.Context) error) error {
	return serve(ctx, port, &http.Server{Handler: http.HandlerFunc(healthy)}, work)
}

// serve runs work next to a server, which speaks TLS if it has a certificate.
func serve(ctx context.Context, port string, server *http.Server, work func(context.Context) error) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("listening for health questions: %w", err)
	}
	server.ReadHeaderTimeout = 5 * time.Second
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	err = work(ctx)
	server.Close()
	<-served
	return err
}

// childEnv is the environment of the components: nothing of the user's that
// could change what they do.
func childEnv(d dir) []string {
	// A sixth of the API server's time is spent collecting garbage at Go's default.
	env := []string{"HOME=" + d.path("data"), "KUBECONFIG=" + d.kubeconfig(), "GOGC=300"}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name == "PATH" || name == "TMPDIR" || name == "TZ" || name == "GOMAXPROCS" {
			env = append(env, kv)
		}
	}
	return env
}
