package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestRequestsOfAnyKind calls each method with random messages, some with existing IDs, and
// with invalid bytes. The response must come soon, must not indicate a bug, and nothing may
// be logged as an error. PIPED_FUZZ_SEED repeats a run, PIPED_FUZZ_CALLS sets the number of
// calls per method.
func TestRequestsOfAnyKind(t *testing.T) {
	seed, calls := number(t, "PIPED_FUZZ_SEED", 1), number(t, "PIPED_FUZZ_CALLS", 80)
	t.Logf("PIPED_FUZZ_SEED=%d PIPED_FUZZ_CALLS=%d", seed, calls)
	l := newFuzzEnv(t)
	for i, m := range allMethods(t) {
		t.Run(string(m.Parent().Name()+"."+m.Name()), func(t *testing.T) {
			g := generator{Rand: rand.New(rand.NewPCG(uint64(seed), uint64(i))), known: l.known}
			for range calls {
				l.call(t, m, g.request(m.Input()))
			}
		})
	}
}

// FuzzMethods does the same with bytes from the fuzzer.
func FuzzMethods(f *testing.F) {
	l, methods := newFuzzEnv(f), allMethods(f)
	for i, m := range methods {
		g := generator{Rand: rand.New(rand.NewPCG(2, uint64(i))), known: l.known}
		f.Add(i, g.message(m.Input()))
	}
	f.Fuzz(func(t *testing.T, n int, request []byte) {
		if n >= 0 && n < len(methods) {
			l.call(t, methods[n], request)
		}
	})
}

// allMethods returns the methods of both services.
func allMethods(t testing.TB) (methods []protoreflect.MethodDescriptor) {
	for _, service := range []protoreflect.FullName{"grpc.service.apiservice.APIService", "piped.control.v1.ControlService"} {
		desc, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
		if err != nil {
			t.Fatal(err)
		}
		for i := range desc.(protoreflect.ServiceDescriptor).Methods().Len() {
			methods = append(methods, desc.(protoreflect.ServiceDescriptor).Methods().Get(i))
		}
	}
	return methods
}

func number(t testing.TB, variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fuzzEnv is an agent with some data of each kind.
type fuzzEnv struct {
	agent *controltest.Agent
	conn  *grpc.ClientConn
	key   string
	log   *logs
	known []string // texts with a meaning, such as IDs
}

// nowhere is a cluster that does not answer.
type nowhere struct{}

var errNowhere = deploy.Errorf(deploy.Unavailable, "no cluster in this test")

func (nowhere) Removals(context.Context, deploy.Application) ([]deploy.InventoryItem, error) {
	return nil, errNowhere
}

func (nowhere) LiveState(context.Context, deploy.Application, deploy.LiveChildren) (deploy.LiveState, error) {
	return deploy.LiveState{}, errNowhere
}

func (nowhere) LiveObject(context.Context, deploy.Application, deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	return deploy.ObjectDetail{}, errNowhere
}

func (nowhere) ObjectEvents(context.Context, deploy.Application, deploy.EventQuery) (deploy.ObjectEvents, error) {
	return deploy.ObjectEvents{}, errNowhere
}

func (nowhere) PodLog(context.Context, deploy.Application, deploy.PodLogQuery, func(deploy.PodLog) error) error {
	return errNowhere
}

func (nowhere) OnLiveChange(deploy.Application, func()) func() { return func() {} }

func (nowhere) Report(context.Context, string, bool) (deploy.DriftReport, error) {
	return deploy.DriftReport{}, errNowhere
}

func (nowhere) Figures(context.Context, deploy.FiguresQuery) (deploy.DeliveryReport, error) {
	return deploy.DeliveryReport{}, errNowhere
}

func newFuzzEnv(t testing.TB) *fuzzEnv {
	l := &fuzzEnv{log: &logs{}}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Planner, c.Remover, c.Live, c.Objects, c.Drift, c.Figures = previews{}, nowhere{}, nowhere{}, nowhere{}, nowhere{}, nowhere{}
		c.Logger = slog.New(slog.NewTextHandler(l.log, nil))
	})
	l.agent, l.conn, l.key = agent, dial(t, agent.Server.Addr()), agent.ReadWrite
	reader, _, _ := strings.Cut(agent.ReadOnly, ".")
	l.known = []string{controltest.PipedID, "apps", "app.pipecd.yaml", "KUBERNETES", "DEPLOYMENT_SUCCESS", "main", reader, controltest.SyncStage, "Deployment"}
	for name, status := range map[string]deploy.Status{"web": deploy.Success, "api": deploy.Running, "db": deploy.Failure, "job": deploy.Pending} {
		app := agent.Application(name, map[string]string{"team": name})
		agent.Deployment("d-"+name, app, "")
		if status != deploy.Pending {
			agent.Move("d-"+name, status, "as it is")
			agent.Log("d-"+name, controltest.SyncStage, "one", "two")
		}
		if name == "web" {
			drifts(t, agent, app)
			analysed(t, agent, "d-web")
		}
		l.known = append(l.known, app.ID, "d-"+name)
	}
	registered(t, agent, "event-1", deploy.EventHandling{RepoID: "apps", Status: deploy.EventHandled, Commit: tracedHash, PullRequestURL: "https://github.com/shop/apps/pull/2"})
	l.known = append(l.known, "event-1", tracedHash)
	return l
}

// call sends a request and checks the response.
func (l *fuzzEnv) call(t *testing.T, m protoreflect.MethodDescriptor, request []byte) {
	t.Helper()
	patience := time.Minute
	if m.IsStreamingServer() {
		patience = 30 * time.Millisecond // a stream may stay silent
	}
	ctx, end := context.WithTimeout(as(t, l.key), patience)
	defer end()
	err := l.send(ctx, m, request)
	allowed := map[codes.Code]bool{
		codes.OK: true, codes.InvalidArgument: true, codes.NotFound: true, codes.FailedPrecondition: true, codes.AlreadyExists: true,
		codes.Unimplemented: true, codes.PermissionDenied: true, codes.Aborted: true,
		codes.DeadlineExceeded: m.IsStreamingServer(),
		// gRPC's own error for a malformed request.
		codes.Internal:    proto.Unmarshal(request, dynamicpb.NewMessage(m.Input())) != nil && strings.Contains(fmt.Sprint(err), "unmarshal"),
		codes.Unavailable: strings.Contains(fmt.Sprint(err), errNowhere.Error()),
	}
	if code := status.Code(err); !allowed[code] {
		t.Errorf("%s answers %v to %x", m.Name(), err, request)
	}
	if log := l.log.take(); strings.Contains(log, "level=ERROR") {
		t.Fatalf("%s logs an error of %x:\n%s", m.Name(), request, log)
	}
}

// send calls a method and reads the first response.
func (l *fuzzEnv) send(ctx context.Context, m protoreflect.MethodDescriptor, request []byte) error {
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); !errors.Is(err, io.EOF) { // EOF: an empty stream
		return err
	}
	return nil
}

// generator creates random requests.
type generator struct {
	*rand.Rand
	known []string
}

// request returns an encoded message, sometimes damaged, sometimes not a message at all.
func (g generator) request(d protoreflect.MessageDescriptor) []byte {
	switch g.IntN(10) {
	case 0:
		return g.bytes(g.IntN(200))
	case 1:
		data := g.message(d)
		for range 1 + g.IntN(3) {
			if len(data) > 0 {
				data[g.IntN(len(data))] = byte(g.Uint32())
			}
		}
		return data
	case 2:
		data := g.message(d)
		return data[:g.IntN(len(data)+1)]
	case 3:
		return nil
	}
	return g.message(d)
}

func (g generator) message(d protoreflect.MessageDescriptor) []byte {
	m := dynamicpb.NewMessage(d)
	g.fill(m, 0)
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err) // unreachable: the generator creates valid UTF-8 only
	}
	return data
}

// fill sets most fields of a message.
func (g generator) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case g.IntN(4) == 0, depth > 4:
		case f.IsMap():
			value := m.Mutable(f).Map()
			for range g.IntN(4) {
				v := value.NewValue()
				if f.MapValue().Message() != nil {
					g.fill(v.Message(), depth+1)
				} else {
					v = g.scalar(f.MapValue())
				}
				value.Set(g.scalar(f.MapKey()).MapKey(), v)
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range g.IntN(4) {
				if f.Message() != nil {
					g.fill(list.AppendMutable().Message(), depth+1)
				} else {
					list.Append(g.scalar(f))
				}
			}
		case f.Message() != nil:
			g.fill(m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, g.scalar(f))
		}
	}
}

func (g generator) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := g.number()
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.IntN(2) == 0)
	case protoreflect.EnumKind:
		if g.IntN(3) == 0 {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
		}
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(g.IntN(f.Enum().Values().Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(g.bytes(g.IntN(50)))
	default:
		return protoreflect.ValueOfString(g.text())
	}
}

func (g generator) number() int64 {
	special := []int64{0, 1, -1, 2, 50, 500, 501, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, 1_700_000_000, 1_700_000_000_000}
	if n := g.IntN(2 * len(special)); n < len(special) {
		return special[n]
	}
	return int64(g.Uint64())
}

func (g generator) text() string {
	switch g.IntN(4) {
	case 0, 1:
		return g.known[g.IntN(len(g.known))]
	case 2:
		special := []string{
			"", " ", "\x00", "a\x00b", "../../etc/passwd", "0123456", "0123456789abcdef0123456789abcdef01234567", "%s%n", "'; --", "{}", "{{.}}",
			"2026-01-02T03:04:05Z", "eyJhIjoxfQ==", "é\u202e🚀", "a.b", "https://example.com/apps.git", "git@example.com:apps.git", "-1", strings.Repeat("x", 10_000),
		}
		return special[g.IntN(len(special))]
	}
	return strings.ToValidUTF8(string(g.bytes(g.IntN(40))), "?")
}

func (g generator) bytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(g.Uint32())
	}
	return data
}
