package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
)

// peer plays an unmodified pipectl against a whole agent, without our generated types: it
// encodes and decodes messages by the field numbers of PipeCD's contract, written here by
// hand. From the client it uses only the connection and the key.
type peer struct{ *client }

// bytesCodec passes bytes through unchanged.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

// try calls a method of PipeCD's service with a request made of fields.
func (p peer) try(method string, fields ...[]byte) ([]byte, error) {
	var resp []byte
	err := p.conn.Invoke(p.ctx, "/grpc.service.apiservice.APIService/"+method, slices.Concat(fields...), &resp, grpc.ForceCodec(bytesCodec{}))
	if err == nil && len(resp) >= 4<<20 {
		p.t.Fatalf("%s answered %d bytes, which an unmodified pipectl refuses", method, len(resp))
	}
	return resp, err
}

// call is try for a call that must succeed.
func (p peer) call(method string, fields ...[]byte) []byte {
	p.t.Helper()
	resp, err := p.try(method, fields...)
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	return resp
}

// poll calls a method until done accepts its response, and returns that response.
func (p peer) poll(what string, done func([]byte) bool, method string, fields ...[]byte) []byte {
	p.t.Helper()
	var last []byte
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if last = p.call(method, fields...); done(last) {
			return last
		}
	}
	p.t.Fatalf("%s does not return %s; the last response was %q", method, what, last)
	return nil
}

// text encodes a length-delimited field, number a varint field.
func text(field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value)
}

func number(field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), value)
}

// values returns the values at a path of field numbers, numbers in decimal. It collects
// the values from all elements of repeated fields.
func (p peer) values(message []byte, path ...protowire.Number) []string {
	p.t.Helper()
	at := []string{string(message)}
	for _, want := range path {
		var next []string
		for _, m := range at {
			next = append(next, p.field([]byte(m), want)...)
		}
		at = next
	}
	return at
}

func (p peer) field(message []byte, want protowire.Number) (out []string) {
	p.t.Helper()
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		n := protowire.ConsumeFieldValue(field, kind, message[max(tag, 0):])
		if tag < 0 || n < 0 {
			p.t.Fatalf("the message is broken at %q", message)
		}
		value := message[tag : tag+n]
		message = message[tag+n:]
		switch {
		case field != want:
		case kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			out = append(out, fmt.Sprint(v))
		case kind == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			out = append(out, string(v))
		default:
			p.t.Fatalf("field %d has wire type %d, which the contract does not use", field, kind)
		}
	}
	return out
}

// value returns values joined by commas.
func (p peer) value(message []byte, path ...protowire.Number) string {
	p.t.Helper()
	return strings.Join(p.values(message, path...), ",")
}

// is returns a condition that the value at a path equals want.
func (p peer) is(want string, path ...protowire.Number) func([]byte) bool {
	return func(message []byte) bool { return p.value(message, path...) == want }
}

// TestFlowsOfPipectl plays the requests of pipectl's commands: sync with wait-status,
// logs, event register, encrypt, plan-preview.
func TestFlowsOfPipectl(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{Push: true})
	first := repo.Push(t, "add web", withRule(ns))
	p := peer{runAgent(t, settings{
		dataDir: t.TempDir(), remote: server.URL, kubeconfig: cluster.Kubeconfig(),
		more: exampleKeys(t),
	})}
	web := appID("web")
	p.deployed(web, first)

	t.Run("sync with wait-status, then logs", func(t *testing.T) {
		p := p.in(t)
		command := p.value(p.call("SyncApplication", text(1, web)), 1)
		now := p.call("GetCommand", text(1, command)) // known at once: NotFound would end pipectl
		if p.value(now, 1, 1) != command || p.value(now, 1, 30) != "" || p.value(now, 1, 31, 1) != web {
			t.Fatalf("the command right after its creation is %q", now)
		}
		answered := p.poll("that the command succeeded", p.is("1", 1, 20), "GetCommand", text(1, command))
		if p.value(answered, 1, 21, 1) != "TriggeredDeploymentID" {
			t.Fatalf("the command's metadata is %q", p.value(answered, 1, 21))
		}
		deployment := p.value(answered, 1, 21, 2)
		d := p.poll("success", p.is("4", 1, 30), "GetDeployment", text(1, deployment))
		if got := p.value(d, 1, 20, 2); got != "owner" {
			t.Errorf("the commander is %q", got)
		}
		logs := p.call("ListStageLogs", text(1, deployment))
		stages := p.values(d, 1, 32, 1)
		if got := p.values(logs, 1, 1); len(got) == 0 || slices.ContainsFunc(got, func(id string) bool { return !slices.Contains(stages, id) }) {
			t.Errorf("logs of %q, but the stages are %q", got, stages)
		}
		if blocks := p.values(logs, 1, 2, 1, 2); len(blocks) == 0 || p.value(logs, 1, 2, 2) != "1" {
			t.Errorf("the logs are %q", logs)
		}
	})
	t.Run("event register", func(t *testing.T) {
		p := p.in(t)
		label := slices.Concat(text(1, "app"), text(2, "web"))
		if id := p.value(p.call("RegisterEvent", text(1, "image-pushed"), text(2, "registry.example/web:v2"), text(3, string(label)), text(5, "c0ffee"), text(6, "https://example.com/c0ffee")), 1); len(id) != 36 {
			t.Errorf("the event's ID is %q", id)
		}
		moved := func(resp []byte) bool {
			return slices.Contains(p.values(resp, 1, 50), "c0ffee") && gitOf(t, repo, "rev-parse", "main") != first
		}
		p.poll("a deployment that traces back to the event", moved, "ListDeployments", text(3, web), number(6, 1))
		p.deployed(web, gitOf(t, repo, "rev-parse", "main"))
	})
	t.Run("encrypt", func(t *testing.T) {
		p := p.in(t)
		sealed := p.value(p.call("Encrypt", text(1, "hunter2\n"), text(2, testID(t.Name()))), 1)
		commit := repo.Push(t, "a secret", map[string]string{
			"secret/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: secret\n  input: {namespace: " + ns + "}\n" +
				"  encryption:\n    decryptionTargets: [secret.yaml]\n    encryptedSecrets: {password: " + sealed + "}\n",
			"secret/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: secret}\ndata: {password: \"{{ .encryptedSecrets.password | b64enc }}\"}\n",
		})
		p.deployed(appID("secret"), commit)
		got, err := live.CoreV1().Secrets(ns).Get(t.Context(), "secret", metav1.GetOptions{})
		if err != nil || string(got.Data["password"]) != "hunter2\n" {
			t.Errorf("the live Secret holds %q, %v", got.Data, err)
		}
	})
	t.Run("plan-preview", func(t *testing.T) {
		p := p.in(t)
		commit := repo.PushOn(t, "pr", "a pull request", webApp(ns, "v9", ""))
		commands := p.values(p.call("RequestPlanPreview", text(1, server.URL), text(2, "pr"), text(3, commit), text(4, gittest.Branch), number(5, uint64(patience.Seconds()))), 1)
		if len(commands) != 1 {
			t.Fatalf("the commands are %q", commands)
		}
		result := p.awaitPreview(commands[0])
		want := map[string]string{
			"command": commands[0], "piped": testID(t.Name()), "error": "", "application": web, "name": "web", "directory": "web", "of": testID(t.Name()), "project": "test",
			"branch": "pr", "commit": commit, "strategy": "1", "failure": "",
		}
		got := map[string]string{
			"command": p.value(result, 1, 1), "piped": p.value(result, 1, 2), "error": p.value(result, 1, 5), "application": p.value(result, 1, 4, 1),
			"name": p.value(result, 1, 4, 2), "directory": p.value(result, 1, 4, 5), "of": p.value(result, 1, 4, 9), "project": p.value(result, 1, 4, 10),
			"branch": p.value(result, 1, 4, 20), "commit": p.value(result, 1, 4, 21), "strategy": p.value(result, 1, 4, 30), "failure": p.value(result, 1, 4, 40),
		}
		mustEqual(t, want, got)
		mustContain(t, p.value(result, 1, 4, 31), "0 added manifests, 1 changed manifests, 0 deleted manifests")
		mustContain(t, p.value(result, 1, 4, 32), "+      - image: registry.example/web:v9")
		if none := p.call("RequestPlanPreview", text(1, server.URL), text(2, "pr"), text(3, commit), text(4, "unwatched"), number(5, uint64(patience.Seconds()))); len(none) != 0 {
			t.Errorf("the response for an unwatched branch is %q, want an empty message", none)
		}
	})
}

// awaitPreview polls as pipectl does: NotFound with a message, which it prints, means not
// ready; any other error ends it.
func (p peer) awaitPreview(command string) []byte {
	p.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var resp []byte
		if resp, err = p.try("GetPlanPreviewResults", text(1, command), number(2, uint64(patience.Seconds()))); err == nil {
			return resp
		}
		if status.Code(err) != codes.NotFound || status.Convert(err).Message() == "" {
			break
		}
	}
	p.t.Fatalf("plan preview %s: %v", command, err)
	return nil
}

// TestListsOfAThousandApplications follows cursors through 1,000 applications, as
// transfer backup does: first the enabled applications, then the disabled ones, then
// their agents.
func TestListsOfAThousandApplications(t *testing.T) {
	t.Parallel()
	const count, disabled = 1000, 7
	cluster, repo := clustertest.Shared(t), newRepo(t)
	files, want, labelled := map[string]string{}, []string{}, map[string]bool{}
	for i := range count {
		dir := fmt.Sprintf("many/app-%04d", i)
		files[dir+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: app-%04d\n  labels: {half: \"%d\"}\n  trigger: {onCommit: {disabled: true}}\n", i, i%2)
		want = append(want, appID(dir))
		labelled[appID(dir)] = i%2 == 1
	}
	slices.Sort(want)
	repo.Push(t, "many applications", files)
	p := peer{runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if n := len(p.sweep(0, number(7, 500))); n == count {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d applications after %s", n, patience)
		}
	}
	for _, id := range want[:disabled] {
		p.call("DisableApplication", text(1, id))
	}
	for _, limit := range []uint64{500, 37} {
		p.mustList(want[disabled:], 0, number(7, limit))
		p.mustList(want[:disabled], 1, number(7, limit))
	}
	label := text(6, string(slices.Concat(text(1, "half"), text(2, "1"))))
	without := func(id string) bool { return !labelled[id] }
	p.mustList(slices.DeleteFunc(slices.Clone(want[disabled:]), without), 0, label, number(7, 100))
	p.mustList(slices.DeleteFunc(slices.Clone(want[:disabled]), without), 1, label, number(7, 100))
	agents := slices.Compact(slices.Sorted(slices.Values(p.values(p.call("ListApplications", number(7, 500)), 1, 4))))
	mustEqual(t, []string{testID(t.Name())}, agents)
	agent := p.call("GetPiped", text(1, agents[0]))
	if p.value(agent, 1, 1) != testID(t.Name()) || p.value(agent, 1, 10, 1) != "apps" || p.value(agent, 1, 14) == "" {
		t.Errorf("the agent is %q", agent)
	}
}

// mustList waits until the pages hold exactly the wanted applications. An application
// that changes between two pages moves to the first one, which was read already: the
// pages are complete once the agent has evaluated every application and none changes.
func (p peer) mustList(want []string, disabled uint64, conditions ...[]byte) {
	p.t.Helper()
	diff := "nothing was listed"
	for end := time.Now().Add(patience); diff != "" && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		diff = cmp.Diff(want, slices.Sorted(slices.Values(p.sweep(disabled, conditions...))))
	}
	if diff != "" {
		p.t.Errorf("(-want +got):\n%s", diff)
	}
}

// sweep lists page by page until the cursor or a page is empty, and returns the IDs
// in their order. Each page must be ordered by the time of change, newest first.
func (p peer) sweep(disabled uint64, conditions ...[]byte) (ids []string) {
	p.t.Helper()
	cursor := ""
	for {
		page := p.call("ListApplications", append(slices.Clone(conditions), number(4, disabled), text(10, cursor))...)
		got, at := p.values(page, 1, 1), p.values(page, 1, 102)
		for i := 1; i < len(got); i++ {
			if at[i] > at[i-1] {
				p.t.Fatalf("%s of second %s comes after %s of second %s", got[i], at[i], got[i-1], at[i-1])
			}
		}
		ids = append(ids, got...)
		if cursor = p.value(page, 2); cursor == "" || len(got) == 0 {
			return ids
		}
	}
}

// deployed waits until the newest deployment of an application is for a commit and has
// succeeded.
func (p peer) deployed(app, commit string) {
	p.t.Helper()
	p.poll("the success of commit "+commit, func(resp []byte) bool {
		return p.value(resp, 1, 20, 1, 1) == commit && p.value(resp, 1, 30) == "4"
	}, "ListDeployments", text(3, app), number(6, 1))
}

// in is the peer within a subtest.
func (p peer) in(t *testing.T) peer {
	c := *p.client
	c.t = t
	return peer{&c}
}

func mustEqual[T any](t *testing.T, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
