package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// readEvery is how long a client waits between two reads.
const readEvery = time.Second

// apiClient is one client of the control API, with a connection and a key of its
// own. It reads what the archive holds, watches all deployments and follows the
// logs of those that run.
type apiClient struct {
	archive archive
	key     string
	conn    *grpc.ClientConn
	api     apiservice.APIServiceClient
	control controlv1.ControlServiceClient
	health  grpc_health_v1.HealthClient
	started chan string // deployments that run, for the follower; one at a time

	reads, floors []time.Duration // of unary reads, and of health checks right after them
	ended         map[string]bool // deployments that were seen to end
	blocks, torn  int             // log blocks, and those that were not the next ones
}

func newAPIClient(address, key string, a archive) (*apiClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &apiClient{
		archive: a, key: key, conn: conn, api: apiservice.NewAPIServiceClient(conn), control: controlv1.NewControlServiceClient(conn),
		health: grpc_health_v1.NewHealthClient(conn), started: make(chan string, 1), ended: map[string]bool{},
	}, nil
}

// run does all at once until ctx ends. It returns the first error that is not that.
func (c *apiClient) run(ctx context.Context) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+c.key)
	group, ctx := errgroup.WithContext(ctx)
	for what, do := range map[string]func(context.Context) error{"read": c.read, "watch": c.watch, "follow": c.follow} {
		group.Go(func() error {
			err := do(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", what, err)
		})
	}
	return group.Wait()
}

// read reads something now and then, and measures how long that takes, next to a
// call that does nothing.
func (c *apiClient) read(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration((0.5 + rand.Float64()) * float64(readEvery))):
		}
		began := time.Now()
		if err := c.readOne(ctx); err != nil {
			return err
		}
		took := time.Since(began)
		began = time.Now()
		if _, err := c.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			return err
		}
		c.reads, c.floors = append(c.reads, took), append(c.floors, time.Since(began))
	}
}

// readOne is what people and programs ask for, one thing of many.
func (c *apiClient) readOne(ctx context.Context) (err error) {
	app := c.archive.applications[rand.IntN(len(c.archive.applications))]
	deployment := c.archive.deployments[rand.IntN(len(c.archive.deployments))]
	const few = 20
	list := func(req *apiservice.ListDeploymentsRequest) error {
		req.Limit = few
		resp, err := c.api.ListDeployments(ctx, req)
		if err == nil && len(resp.Deployments) != few {
			err = fmt.Errorf("%d deployments for %v, want %d", len(resp.Deployments), req, few)
		}
		return err
	}
	switch rand.IntN(9) {
	case 0:
		err = list(&apiservice.ListDeploymentsRequest{})
	case 1:
		err = list(&apiservice.ListDeploymentsRequest{Statuses: []string{"DEPLOYMENT_FAILURE", "DEPLOYMENT_SUCCESS"}})
	case 2:
		err = list(&apiservice.ListDeploymentsRequest{ApplicationIds: []string{app}})
	case 3:
		err = list(&apiservice.ListDeploymentsRequest{Labels: map[string]string{"app": app}})
	case 4:
		err = list(&apiservice.ListDeploymentsRequest{Labels: map[string]string{"env": "prod"}, Kinds: []string{"KUBERNETES"}})
	case 5:
		_, err = c.api.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: deployment})
	case 6:
		_, err = c.api.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: deployment})
	case 7:
		_, err = c.api.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: few})
	case 8:
		_, err = c.control.GetStatus(ctx, &controlv1.GetStatusRequest{})
	}
	return err
}

// watch notes which deployments end, and hands on those that run.
func (c *apiClient) watch(ctx context.Context) error {
	stream, err := c.control.WatchDeployments(ctx, &controlv1.WatchDeploymentsRequest{CompletedLimit: watchedBefore})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		switch d := resp.GetDeployment(); {
		case d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
			c.ended[d.GetId()] = true
		case d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_RUNNING:
			select {
			case c.started <- d.GetId():
			default: // another one is followed
			}
		}
	}
}

// follow follows the logs of one deployment after the other to their ends.
func (c *apiClient) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-c.started:
			if err := c.followOne(ctx, id); err != nil {
				return err
			}
		}
	}
}

func (c *apiClient) followOne(ctx context.Context, id string) error {
	stream, err := c.control.FollowStageLogs(ctx, &controlv1.FollowStageLogsRequest{DeploymentId: id})
	if err != nil {
		return err
	}
	next := map[string]int64{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, b := range resp.Blocks {
			c.blocks++
			if b.Index != next[resp.StageId] {
				c.torn++
			}
			next[resp.StageId] = b.Index + 1
		}
	}
}
