package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// client asks the replicas, whichever answers.
type client struct {
	keyFile  string
	replicas []*grpc.ClientConn
}

func dial(addresses []string, keyFile string) (*client, error) {
	c := &client{keyFile: keyFile}
	for _, address := range addresses {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(c.authorize))
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.replicas = append(c.replicas, conn)
	}
	return c, nil
}

func (c *client) close() error {
	var err error
	for _, r := range c.replicas {
		err = errors.Join(err, r.Close())
	}
	return err
}

func (c *client) authorize(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return err
	}
	return invoke(metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+strings.TrimSpace(string(key))), method, req, reply, conn, opts...)
}

// answerTime bounds the wait for one replica.
const answerTime = 3 * time.Second

// ask calls the replicas one after the other until one answers.
func (c *client) ask(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
	var problems error
	for _, replica := range c.replicas {
		limited, cancel := context.WithTimeout(ctx, answerTime)
		err := call(limited, replica)
		cancel()
		if err == nil {
			return nil
		}
		problems = errors.Join(problems, fmt.Errorf("%s: %w", replica.Target(), err))
	}
	return problems
}

// deployments returns the deployments of the load.
func (c *client) deployments(ctx context.Context) (out []*modelv1.Deployment, err error) {
	request := &apiservice.ListDeploymentsRequest{Limit: 500}
	for {
		var page *apiservice.ListDeploymentsResponse
		err := c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
			page, err = apiservice.NewAPIServiceClient(conn).ListDeployments(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, d := range page.GetDeployments() {
			if strings.HasPrefix(d.GetApplicationName(), prefix) {
				out = append(out, d)
			}
		}
		if request.Cursor = page.GetCursor(); len(page.GetDeployments()) == 0 || request.GetCursor() == "" {
			return out, nil
		}
	}
}

// deployment returns one, with its transitions.
func (c *client) deployment(ctx context.Context, id string) (d *modelv1.Deployment, err error) {
	err = c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		response, err := apiservice.NewAPIServiceClient(conn).GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
		d = response.GetDeployment()
		return err
	})
	return d, err
}

// applications returns the applications of the load by name.
func (c *client) applications(ctx context.Context) (map[string]*modelv1.Application, error) {
	out := map[string]*modelv1.Application{}
	err := c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		response, err := apiservice.NewAPIServiceClient(conn).ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1000})
		for _, a := range response.GetApplications() {
			if strings.HasPrefix(a.GetName(), prefix) {
				out[a.GetName()] = a
			}
		}
		return err
	})
	return out, err
}

// logs returns the logs of a deployment's stages.
func (c *client) logs(ctx context.Context, id string) (logs map[string]*apiservice.StageLog, err error) {
	err = c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		response, err := apiservice.NewAPIServiceClient(conn).ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: id})
		logs = response.GetStageLogs()
		return err
	})
	return logs, err
}

// rollouts returns the rollouts of an application.
func (c *client) rollouts(ctx context.Context, application string) (out []*modelv1.Rollout, err error) {
	request := &controlv1.ListRolloutsRequest{ApplicationIds: []string{application}, Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT}
	for {
		var page *controlv1.ListRolloutsResponse
		err := c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
			page, err = controlv1.NewControlServiceClient(conn).ListRollouts(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, page.GetRollouts()...)
		if request.Cursor = page.GetCursor(); request.GetCursor() == "" {
			return out, nil
		}
	}
}

// approve approves a stage.
func (c *client) approve(ctx context.Context, deployment, stage string) error {
	return c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := controlv1.NewControlServiceClient(conn).ApproveStage(ctx, &controlv1.ApproveStageRequest{DeploymentId: deployment, StageId: stage})
		return err
	})
}

// partitions returns how many partitions each process holds.
func (c *client) partitions(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	err := c.ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		status, err := controlv1.NewControlServiceClient(conn).GetStatus(ctx, &controlv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		if status.GetStore().GetError() != "" {
			return errors.New(status.GetStore().GetError())
		}
		for _, r := range status.GetStore().GetReplicas() {
			if r.GetPartitions() > 0 {
				out[r.GetHost()] = int(r.GetPartitions())
			}
		}
		return nil
	})
	return out, err
}
