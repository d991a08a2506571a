package control_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestHiddenApplicationsDoNotExist compares two agents: one has all applications and a caller
// who may view some, the other has only those some and a caller who may view all. Every read
// must return the same to both, be it about a visible, a hidden or an unknown application.
func TestHiddenApplicationsDoNotExist(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			limit := randomSelector(rng)
			apps := randomApplications(rng)
			partly, wholly := startedWith(t, apps, deploy.Selector{}), startedWith(t, apps, limit)
			restricted := caller{partly, dial(t, partly.Server.Addr()), partly.LimitedKey("viewer", &limit)}
			free := caller{wholly, dial(t, wholly.Server.Addr()), wholly.LimitedKey("viewer", nil)}
			for _, service := range []string{apiservice.APIService_ServiceDesc.ServiceName, controlv1.ControlService_ServiceDesc.ServiceName} {
				methods := serviceMethods(t, service)
				for i := range methods.Len() {
					if method := methods.Get(i); isRead(method) {
						compare(t, method, apps, restricted, free)
					}
				}
			}
		})
	}
}

// caller is an agent with a caller of its API.
type caller struct {
	agent *controltest.Agent
	conn  *grpc.ClientConn
	key   string
}

// compare calls a method about each application, about an unknown one and about none.
func compare(t *testing.T, method protoreflect.MethodDescriptor, apps []deploy.Application, restricted, free caller) {
	t.Helper()
	about := append([]deploy.Application{{}, {ID: "app-unknown", Name: "unknown"}}, apps...)
	for _, app := range about {
		for _, pageSize := range []int32{0, 2} {
			want, got := read(t, free, method, app, pageSize), read(t, restricted, method, app, pageSize)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s about %q, pages of %d: hidden applications show (-without them +with them):\n%s", method.Name(), app.ID, pageSize, diff)
			}
		}
	}
}

// read returns the text of every page that a call returns.
func read(t *testing.T, c caller, method protoreflect.MethodDescriptor, app deploy.Application, pageSize int32) (pages []string) {
	t.Helper()
	ctx, end := context.WithTimeout(as(t, c.key), 2*time.Minute)
	defer end()
	req := dynamicpb.NewMessage(method.Input())
	if app.ID != "" {
		fill(req, app, "d-"+app.Name, "c-"+app.Name)
	}
	limit, cursor := req.Descriptor().Fields().ByName("limit"), req.Descriptor().Fields().ByName("cursor")
	if limit != nil {
		req.Set(limit, protoreflect.ValueOfInt32(pageSize))
	}
	for range 100 {
		resp := dynamicpb.NewMessage(method.Output())
		path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		if method.IsStreamingServer() {
			text, err := firstAnswer(ctx, c.conn, path, method, req)
			return append(pages, fmt.Sprint(status.Convert(err).Message(), strings.Join(strings.Fields(text), " ")))
		}
		if err := c.conn.Invoke(ctx, path, req, resp); err != nil {
			return append(pages, err.Error())
		}
		next := ""
		if f := resp.Descriptor().Fields().ByName("cursor"); f != nil {
			next = resp.Get(f).String()
		}
		text := strings.Join(strings.Fields(prototext.MarshalOptions{Multiline: true}.Format(resp)), " ")
		if pages = append(pages, text); next == "" || cursor == nil {
			return pages
		}
		req.Set(cursor, protoreflect.ValueOfString(next))
	}
	t.Fatalf("%s does not end", method.Name())
	return nil
}

// startedWith starts an agent with those of the applications that a selector selects, each with
// a deployment, a command and a drift report. Times do not depend on the selector.
func startedWith(t *testing.T, apps []deploy.Application, only deploy.Selector) *controltest.Agent {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Live, c.Objects, c.Figures, c.Planner = emptyCluster{}, emptyCluster{}, noFigures{}, plansNothing{}
		c.Configurations = pathOnly{}
	})
	for _, app := range apps {
		if !only.Matches(app) {
			agent.Tick(2 * time.Second)
			continue
		}
		stored := agent.Application(app.Name, app.Labels)
		agent.Deployment("d-"+app.Name, stored, "")
		previewOf(t, agent, stored)
		if _, err := agent.Store.CreateCommand(t.Context(), deploy.Command{ID: "c-" + app.Name, Type: deploy.CommandSync, ApplicationID: stored.ID, Commander: "ana"}); err != nil {
			t.Fatal(err)
		}
	}
	return agent
}

func randomApplications(rng *rand.Rand) (apps []deploy.Application) {
	for i := range 12 {
		labels := map[string]string{"team": string(rune('a' + rng.IntN(3)))}
		if rng.IntN(2) == 0 {
			labels["env"] = "prod"
		}
		name := fmt.Sprintf("%s-%d", []string{"web", "api", "job"}[rng.IntN(3)], i)
		apps = append(apps, deploy.Application{ID: "app-" + name, Name: name, Labels: labels, Git: deploy.GitPath{RepoID: "apps"}})
	}
	return apps
}

func randomSelector(rng *rand.Rand) deploy.Selector {
	s := deploy.Selector{Labels: map[string]string{"team": string(rune('a' + rng.IntN(3)))}}
	if rng.IntN(3) == 0 {
		s.Labels["env"] = "prod"
	}
	if rng.IntN(3) == 0 {
		s.Names = []string{[]string{"web-*", "*-1*", "api-3"}[rng.IntN(3)]}
	}
	return s
}
