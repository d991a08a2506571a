package browsertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/web/page/browsertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	deploymentSuccess   = modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	deploymentFailure   = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE
	deploymentCancelled = modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED
)

// awaitLast waits until the last deployment of an application is another than that with an ID,
// and has a status.
func (e *env) awaitLast(t *testing.T, name, before string, want modelv1.DeploymentStatus) *modelv1.Deployment {
	t.Helper()
	var d *modelv1.Deployment
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if d = e.last(t, name); d.Id != before && d.Status == want {
			return d
		}
	}
	t.Fatalf("no new deployment of %s became %s; the last is %v", name, want, d)
	return nil
}

// awaitStage waits until a stage of a new deployment of an application runs.
func (e *env) awaitStage(t *testing.T, name, before, stage string) *modelv1.Deployment {
	t.Helper()
	var d *modelv1.Deployment
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		d = e.last(t, name)
		for _, s := range d.Stages {
			if d.Id != before && s.Id == stage && s.Status == modelv1.StageStatus_STAGE_RUNNING {
				return d
			}
		}
	}
	t.Fatalf("the stage %s of %s does not run; the last deployment is %v", stage, name, d)
	return nil
}

// application returns an application as the API has it.
func (e *env) application(t *testing.T, name string) *modelv1.Application {
	t.Helper()
	resp, err := e.api.GetApplication(e.ctx, &apiservice.GetApplicationRequest{ApplicationId: idOf(name)})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Application
}

// image returns the image of an application in the cluster.
func (e *env) image(t *testing.T, name string) string {
	t.Helper()
	d, err := e.cluster.Client(t).AppsV1().Deployments(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// configMaps returns the ConfigMaps of an application in the cluster.
func (e *env) configMaps(t *testing.T, name string) []corev1.ConfigMap {
	t.Helper()
	list, err := e.cluster.Client(t).CoreV1().ConfigMaps(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipecd.dev/application=" + idOf(name)})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// openDialog clicks on a button of the view and waits for the dialog.
func openDialog(tab *browsertest.Tab, selector, label, title string) {
	tab.Click(selector, label)
	tab.AwaitText("dialog h1", title)
}

// fill clicks on the label of a field of the dialog and types a text.
func fill(tab *browsertest.Tab, label, text string) {
	tab.Click("dialog label.field", label)
	tab.Keys(text)
}

// closeDialog closes the dialog after an action.
func closeDialog(tab *browsertest.Tab) {
	tab.Click("dialog [data-close]", "")
	tab.AwaitGone("dialog")
}

// rejectRetryCancel: what waits is rejected with a reason, which the author reads on the
// deployment; it is tried again from there, and the new deployment is cancelled.
func rejectRetryCancel(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	rejected := e.last(t, "payouts")
	openDialog(tab, rowOf("now", "payouts")+" .button", "Reject", "Reject payouts?")
	tab.AwaitText("dialog", "There is no earlier version to roll back to")
	fill(tab, "Reason", "the tests are red")
	tab.Click("dialog button", "Reject")
	tab.AwaitText("dialog", "You have rejected payouts")
	tab.Click("dialog a", "Open the deployment")
	tab.AwaitText(".pipeline", "rejected by owner: the tests are red")
	e.awaitLast(t, "payouts", "", deploymentFailure)
	if got, want := decisionsOf(e.last(t, "payouts")), "owner REJECTED: the tests are red"; got != want {
		t.Errorf("the decisions are %q, want %q", got, want)
	}

	openDialog(tab, ".summary .button", "Retry", "Deploy payouts again?")
	tab.Click("dialog button", "Retry")
	tab.AwaitText("dialog", "A new deployment was asked for")
	tab.AwaitText("dialog #command", "Done")
	again := e.awaitStage(t, "payouts", rejected.Id, "gate")
	if again.Trigger.Commander != "owner" || again.Trigger.Commit.Hash != e.first {
		t.Errorf("the new deployment is triggered by %v, want %s by owner", again.Trigger, e.first)
	}
	tab.Click("dialog #command a", "Open the deployment")
	tab.Await("the new deployment", fmt.Sprintf(`location.pathname === %q`, "/deployments/"+again.Id))
	tab.AwaitText("main", "asked for by owner")

	openDialog(tab, ".summary .button", "Cancel", "Cancel the deployment of payouts?")
	tab.Click("dialog button", "Cancel the deployment")
	tab.AwaitText("dialog", "is being cancelled")
	closeDialog(tab)
	tab.AwaitText("main h1", "was cancelled")
	cancelled := e.awaitLast(t, "payouts", rejected.Id, deploymentCancelled)
	if cancelled.Id != again.Id || !strings.Contains(cancelled.StatusReason, "owner") {
		t.Errorf("%s ended as cancelled, because %q; want %s, by owner", cancelled.Id, cancelled.StatusReason, again.Id)
	}
	_, err := e.cluster.Client(t).AppsV1().Deployments(e.namespace).Get(t.Context(), "payouts", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment of payouts, which no user approved: %v", err)
	}
}

// syncToCommitAndSkip: the pause of a pipeline is skipped with a reason. Then the earlier commit
// is deployed by its pipeline, as chosen in the dialog.
func syncToCommitAndSkip(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	skip := func(d *modelv1.Deployment) {
		t.Helper()
		tab.Open("/deployments/" + d.Id)
		openDialog(tab, ".summary .button", "Skip WAIT", "Skip WAIT?")
		fill(tab, "Reason", "seen enough")
		tab.Click("dialog button", "Skip")
		tab.AwaitText("dialog", "WAIT ends as skipped")
		closeDialog(tab)
		tab.AwaitText("main h1", "is deployed")
		tab.AwaitText(".pipeline", "skipped by owner: seen enough")
		if got := e.awaitLast(t, "slow", "", deploymentSuccess); got.Id != d.Id || got.Stages[0].Status != modelv1.StageStatus_STAGE_SKIPPED || !strings.Contains(got.Stages[0].StatusReason, "owner: seen enough") {
			t.Errorf("after the skip, the deployment is %v", got)
		}
	}
	next := fixturesByName()["slow"]
	next.version = "v2"
	before := e.last(t, "slow").Id
	e.push(t, "A slow change", next)
	second := e.awaitStage(t, "slow", before, "pause")
	skip(second)
	if got := e.image(t, "slow"); got != "registry.example/slow:v2" {
		t.Errorf("the live image is %s, want v2", got)
	}

	tab.Open("/applications/slow")
	openDialog(tab, ".summary .button", "Sync", "Sync slow?")
	tab.Click("dialog label", "Pipeline")
	fill(tab, "Commit", e.first)
	tab.Click("dialog button", "Sync")
	tab.AwaitText("dialog #command", "Done")
	back := e.awaitStage(t, "slow", second.Id, "pause")
	if got := back.Trigger; got.Commit.Hash != e.first || got.SyncStrategy != modelv1.SyncStrategy_PIPELINE || got.Commander != "owner" {
		t.Errorf("the sync was triggered by %v, want the pipeline at %s by owner", got, e.first)
	}
	skip(back)
	if got := e.image(t, "slow"); got != "registry.example/slow:v1" {
		t.Errorf("the live image is %s, want v1", got)
	}
}

// runApplication: a person heals an application, rolls it back, disables and enables it, and at
// last deletes it with its objects, for which its name must be typed.
func runApplication(t *testing.T, e *env) {
	const name = "reports"
	tab := e.signIn(t, e.ownerKey(t), "/")
	e.drift(t, name)
	openDialog(tab, rowOf("now", name)+" .button", "Heal", "Heal reports?")
	tab.AwaitText("dialog", "data.greeting differs")
	tab.Click("dialog button", "Heal")
	tab.AwaitText("dialog #command", "Done")
	e.await(t, name, stateSynced)
	if maps := e.configMaps(t, name); len(maps) != 1 || maps[0].Data["greeting"] != "hello" {
		t.Errorf("after healing, the ConfigMaps are %v", maps)
	}
	closeDialog(tab)
	tab.AwaitGone(rowOf("now", name))

	next := fixturesByName()[name]
	next.version = "v2"
	before := e.last(t, name).Id
	tab.Open("/applications/" + name)
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
	tab.Click("main .menu summary", "More")
	tab.AwaitText(".menu-body .button", "Disable")
	second := e.push(t, "Worse reports", next)
	e.awaitNext(t, name, before)
	before = e.last(t, name).Id
	tab.AwaitText("main h1", "reports is live at "+second[:7])
	if got := tab.Count("main .menu[open]"); got != 1 {
		t.Errorf("after a live change, %d menus are open, want the one that the user opened", got)
	}
	tab.Click("main .menu summary", "More")
	openDialog(tab, ".summary .button", "Roll back", "Roll reports back?")
	tab.AwaitText("dialog", "reports runs "+second[:7]+" now")
	tab.Click("dialog .option", e.first[:7]+" First versions") // healing deployed the head of the branch
	fill(tab, "Reason", "they are empty")
	tab.Click("dialog button", "Roll back")
	tab.AwaitText("dialog", "reports goes back to "+e.first[:7])
	tab.AwaitText("dialog #command", "Done")
	e.awaitNext(t, name, before)
	closeDialog(tab)
	tab.AwaitText("main h1", e.first[:7])
	hold := e.application(t, name).GetHold()
	if got := e.image(t, name); got != "registry.example/reports:v1" || hold.GetCommit() != e.first || hold.GetReason() != "they are empty" || hold.GetHeldBy() != "owner" {
		t.Errorf("the live image is %s, held: %v", got, hold)
	}

	tab.Click("main .menu summary", "More")
	openDialog(tab, ".menu-body .button", "Disable", "Disable reports?")
	tab.Click("dialog button", "Disable")
	tab.AwaitText("dialog", "reports is disabled")
	closeDialog(tab)
	tab.AwaitText(".summary .button", "Enable")
	if !e.application(t, name).GetDisabled() {
		t.Error("the application is not disabled")
	}
	openDialog(tab, ".summary .button", "Enable", "Enable reports?")
	tab.Click("dialog button", "Enable")
	tab.AwaitText("dialog", "reports is enabled")
	closeDialog(tab)
	tab.AwaitText(".summary .button", "Sync")
	if e.application(t, name).GetDisabled() {
		t.Error("the application is still disabled")
	}

	tab.Permit("status of 404") // of the view, once its application is gone
	tab.Permit("status of 422") // of the wrong name
	tab.Click("main .menu summary", "More")
	openDialog(tab, ".menu-body .button", "Delete", "Delete reports?")
	tab.AwaitText("dialog", "deletes 2 objects")
	tab.AwaitText("dialog", "Deployment "+name)
	tab.AwaitText("dialog", "ConfigMap "+name)
	tab.Click("dialog label", "Also delete its live objects")
	fill(tab, "Type reports to confirm", "report")
	tab.Click("dialog button", "Delete")
	tab.AwaitText("dialog [role=alert]", "Nothing was done")
	if e.application(t, name).GetDeleted() {
		t.Fatal("it was deleted although a wrong name was typed")
	}
	tab.Click("dialog label", "Also delete its live objects")
	fill(tab, "Type reports to confirm", name)
	tab.Click("dialog button", "Delete")
	tab.AwaitText("dialog", "reports is unregistered")
	tab.AwaitText("dialog #command", "Done")
	if maps := e.configMaps(t, name); len(maps) > 0 {
		t.Errorf("after the deletion, %d ConfigMaps are left", len(maps))
	}
	_, err := e.cluster.Client(t).AppsV1().Deployments(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion, the Deployment: %v", err)
	}
	tab.Click("dialog a", "All applications")
	tab.AwaitText(rowOf("app", "web"), "web")
	tab.AwaitGone(rowOf("app", name))
}

// fixturesByName returns the fixtures by their names.
func fixturesByName() map[string]fixture {
	out := map[string]fixture{}
	for _, f := range fixtures("") {
		out[f.name] = f
	}
	return out
}

// confirmDeletions: a commit that loses most of an application fails. A person reads what would
// go, types the name, and then it goes.
func confirmDeletions(t *testing.T, e *env) {
	const name, many = "catalog", 12
	catalog := fixture{name: name, labels: "{team: office}", spec: "\n  quickSync: {prune: true}\n", version: "v1"}
	files := catalog.files(e.namespace)
	for n := range many {
		files[name+"/many.yaml"] += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-%02d}\n", name, n)
	}
	e.pushing.Lock()
	e.repo.Push(t, "Add the catalog", files)
	e.pushing.Unlock()
	e.await(t, name, stateSynced)
	before := e.last(t, name).Id
	e.pushing.Lock()
	err := e.repo.Remove(name + "/many.yaml")
	lost := ""
	if err == nil {
		lost = e.repo.Push(t, "Lose the catalog", nil)
	}
	e.pushing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	failed := e.awaitLast(t, name, before, deploymentFailure)

	tab := e.signIn(t, e.ownerKey(t), "/applications/"+name)
	tab.Permit("status of 422")
	tab.Click("main .menu summary", "More")
	openDialog(tab, ".menu-body .button", "Confirm deletions", "Delete 12 objects of catalog?")
	for n := range many {
		tab.AwaitText("dialog .consequences", fmt.Sprintf("%s-%02d", name, n))
	}
	fill(tab, "Type catalog to confirm", "everything")
	tab.Click("dialog button", "Delete and deploy")
	tab.AwaitText("dialog [role=alert]", "Nothing was done")
	if got := len(e.configMaps(t, name)); got != many+1 {
		t.Errorf("after a wrong name, %d ConfigMaps are left, want %d", got, many+1)
	}
	fill(tab, "Type catalog to confirm", name)
	tab.Click("dialog button", "Delete and deploy")
	tab.AwaitText("dialog", "12 objects are deleted by a new deployment")
	tab.AwaitText("dialog #command", "Done")
	if d := e.awaitLast(t, name, failed.Id, deploymentSuccess); d.Trigger.Commit.Hash != lost {
		t.Errorf("deployed is %s, want %s", d.Trigger.Commit.Hash, lost)
	}
	if got := len(e.configMaps(t, name)); got != 1 {
		t.Errorf("%d ConfigMaps are left, want 1", got)
	}
	closeDialog(tab)
	tab.AwaitText("main h1", "catalog is live at "+lost[:7])
}

// inherit creates an application that declares an object of another tool, and opens the dialog
// that asks what becomes of it.
func (e *env) inherit(t *testing.T, name string) *browsertest.Tab {
	t.Helper()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"greeting": "old"}}
	if _, err := e.cluster.Client(t).CoreV1().ConfigMaps(e.namespace).Create(t.Context(), made, metav1.CreateOptions{FieldManager: "another-tool"}); err != nil {
		t.Fatal(err)
	}
	e.push(t, "Add "+name, fixture{name: name, labels: "{team: office}", version: "v1"})
	e.await(t, name, controlv1.ApplicationState_APPLICATION_STATE_HELD)
	tab := e.signIn(t, e.ownerKey(t), "/applications/"+name)
	openDialog(tab, ".summary .button", "Take over", "Take over 1 live object?")
	return tab
}

// takeOverObjects: an application declares an object that another tool has made. It waits until
// a person has seen which, and takes it over.
func takeOverObjects(t *testing.T, e *env) {
	const name = "inherited"
	tab := e.inherit(t, name)
	tab.AwaitText("dialog .consequences", "ConfigMap "+name)
	tab.AwaitText("dialog .consequences", "(changed)")
	tab.AwaitText("dialog .consequences", "managed by another-tool")
	if maps := e.configMaps(t, name); len(maps) > 0 {
		t.Errorf("before the decision, the application has %v", maps)
	}
	tab.Click("dialog button", "Decide")
	tab.AwaitText("dialog", "The live objects of inherited are taken over")
	tab.AwaitText("dialog #command", "Done")
	e.await(t, name, stateSynced)
	if maps := e.configMaps(t, name); len(maps) != 1 || maps[0].Data["greeting"] != "hello" {
		t.Errorf("after the decision, the application has %v", maps)
	}
	closeDialog(tab)
	tab.AwaitGone(`.summary a[href*="/actions/adopt"]`)
	tab.AwaitText("main h1", "inherited is live at ")
}

// leaveObjects: a person declines that an application takes over an object of another tool. The
// application is disabled, and nothing in the cluster changes.
func leaveObjects(t *testing.T, e *env) {
	const name = "declined"
	tab := e.inherit(t, name)
	tab.Click("dialog .option", "Leave them alone")
	tab.Click("dialog button", "Decide")
	tab.AwaitText("dialog", "declined is disabled, and its live objects stay as they are")
	tab.AwaitText("dialog #command", "Done")
	if !e.application(t, name).GetDisabled() {
		t.Error("the application is not disabled")
	}
	if left, err := e.control.ListAdoptions(e.ctx, &controlv1.ListAdoptionsRequest{ApplicationId: idOf(name)}); err != nil || len(left.Adoptions) != 0 {
		t.Errorf("decisions that are still awaited: %v, %v", left, err)
	}
	theirs, err := e.cluster.Client(t).CoreV1().ConfigMaps(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || theirs.Data["greeting"] != "old" || len(theirs.Labels)+len(theirs.Annotations) > 0 {
		t.Errorf("the object of the other tool is %v, %v", theirs, err)
	}
	if _, err := e.cluster.Client(t).AppsV1().Deployments(e.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment of the declined application: %v", err)
	}
	closeDialog(tab)
	tab.AwaitText(".summary .button", "Enable")
}

// cancelWithRollback: two deployments are cancelled after their new version is live. One leaves
// it there, the other rolls it back, each contrary to the configuration.
func cancelWithRollback(t *testing.T, e *env) {
	const name, pausing = "gradual", "\n  planner: {alwaysUsePipeline: true%s}\n  pipeline: {stages: [{id: sync, name: K8S_SYNC}, {id: pause, name: WAIT, with: {duration: 24h}}]}\n"
	tab := e.signIn(t, e.ownerKey(t), "/")
	first := e.push(t, "Add gradual", fixture{name: name, labels: "{team: office}", version: "v1"})
	e.await(t, name, stateSynced)
	before := e.last(t, name).Id
	for _, c := range []struct {
		version, planner, option, hint, live string
		rolledBack                           bool
	}{
		{"v2", "", "Leave everything as it is now", "parts of the new version stay", "v2", false},
		{"v3", ", autoRollback: false", "Roll back", "to " + first[:7], "v1", true},
	} {
		e.push(t, "Deploy "+c.version, fixture{name: name, labels: "{team: office}", spec: fmt.Sprintf(pausing, c.planner), version: c.version})
		d := e.awaitStage(t, name, before, "pause")
		if got := e.image(t, name); got != "registry.example/gradual:"+c.version {
			t.Errorf("before the cancel, the live image is %s, want %s", got, c.version)
		}
		tab.Open("/deployments/" + d.Id)
		openDialog(tab, ".summary .button", "Cancel", "Cancel the deployment of gradual?")
		tab.AwaitText("dialog .option", c.hint)
		tab.Click("dialog .option", c.option)
		tab.Click("dialog button", "Cancel the deployment")
		tab.AwaitText("dialog", "is being cancelled")
		closeDialog(tab)
		tab.AwaitText("main h1", "was cancelled")
		cancelled := e.awaitLast(t, name, before, deploymentCancelled)
		if got := e.image(t, name); cancelled.Id != d.Id || got != "registry.example/gradual:"+c.live {
			t.Errorf("%q cancels %s, and the live image is %s, want %s and %s", c.option, cancelled.Id, got, d.Id, c.live)
		}
		if got := rollbackOf(cancelled) == modelv1.StageStatus_STAGE_SUCCESS; got != c.rolledBack {
			t.Errorf("%q rolls back: %t, want %t: %v", c.option, got, c.rolledBack, cancelled.Stages)
		}
		before = d.Id
	}
}

// rollbackOf returns the status of the stage that rolls a deployment back.
func rollbackOf(d *modelv1.Deployment) modelv1.StageStatus {
	for _, s := range d.Stages {
		if s.Rollback {
			return s.Status
		}
	}
	return modelv1.StageStatus_STAGE_NOT_STARTED_YET
}

// createAndDisableKey: a new key has the chosen role and its secret is shown once; once it is
// disabled, which asks for its name, no call is accepted with it.
func createAndDisableKey(t *testing.T, e *env) {
	const name = "ci-of-shop"
	tab := e.signIn(t, e.ownerKey(t), "/agent?tab=keys")
	openDialog(tab, "main .button", "New key", "Create an API key")
	fill(tab, "Name", name)
	tab.Click("dialog .option", "Deployer")
	fill(tab, "Only with the labels", "team=shop")
	tab.Click("dialog button", "Create")
	tab.AwaitText("dialog h1", "The key "+name+" is created")
	secret := strings.TrimSpace(tab.Text("dialog .secret"))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "API-KEY "+secret)
	caller, err := e.control.GetCaller(ctx, &controlv1.GetCallerRequest{})
	if err != nil || caller.GetSubject() != name {
		t.Fatalf("the secret that is shown is of %v: %v", caller, err)
	}
	key := e.keyNamed(t, name)
	if labels := key.GetApplications().GetLabels(); key.GetRoleName() != "deployer" || len(labels) != 1 || labels["team"] != "shop" {
		t.Errorf("the key is %v, want the role deployer for team=shop", key)
	}
	tab.Click("dialog a", "Show the keys")
	row := fmt.Sprintf("tr:has(a[title*=%q])", name)
	tab.AwaitText(row, "team=shop")
	if browsertest.Eval[bool](tab, fmt.Sprintf(`document.documentElement.outerHTML.includes(%q)`, secret)) {
		t.Error("the secret is shown again")
	}

	tab.Permit("status of 422")
	openDialog(tab, row+" .button", "Disable", "Disable the key "+name+"?")
	fill(tab, "Type "+name, "another")
	tab.Click("dialog button", "Disable for good")
	tab.AwaitText("dialog [role=alert]", "Nothing was done")
	if e.keyNamed(t, name).GetDisabled() {
		t.Fatal("the key is disabled although a wrong name was typed")
	}
	fill(tab, "Type "+name, name)
	tab.Click("dialog button", "Disable for good")
	tab.AwaitText("dialog h1", "The key is disabled")
	if _, err := e.control.GetCaller(ctx, &controlv1.GetCallerRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with the disabled key: %v", err)
	}
	if !e.keyNamed(t, name).GetDisabled() {
		t.Error("the key is not disabled")
	}
	tab.Click("dialog a", "Show the keys")
	tab.AwaitText("main h1", "accepted")
	tab.AwaitGone(row)
}

// keyNamed returns the API key with a name, also a disabled one.
func (e *env) keyNamed(t *testing.T, name string) *modelv1.APIKey {
	t.Helper()
	resp, err := e.control.ListAPIKeys(e.ctx, &controlv1.ListAPIKeysRequest{IncludeDisabled: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range resp.ApiKeys {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("there is no key %s in %v", name, resp.ApiKeys)
	return nil
}

// endSession: the session of another person ends, who has to sign in again.
func endSession(t *testing.T, e *env) {
	theirs := e.signIn(t, e.key(t, "barbara", "viewer"), "/applications")
	theirs.Permit("status of 401")
	tab := e.signIn(t, e.ownerKey(t), "/agent?tab=sessions")
	row := `tr:has(a[title*="barbara"])`
	openDialog(tab, row+" .button", "End", "End the session of barbara?")
	tab.Click("dialog button", "End")
	tab.AwaitText("dialog h1", "The session has ended")
	sessions, err := e.control.ListSessions(e.ctx, &controlv1.ListSessionsRequest{Subject: "barbara"})
	if err != nil || len(sessions.Sessions) != 0 {
		t.Errorf("sessions that are open: %v, %v", sessions, err)
	}
	tab.Click("dialog a", "Show the sessions")
	tab.AwaitText("main h1", "open")
	tab.AwaitGone(row)
	theirs.Open("/applications")
	theirs.Await("the sign-in page", `location.pathname === "/sign-in" && document.querySelector("[name=next]").value === "/applications"`)
}

// focus presses a key until the element with the focus matches a selector and has a text.
func focus(t *testing.T, tab *browsertest.Tab, key, selector, text string) {
	t.Helper()
	for range 60 {
		if browsertest.Eval[bool](tab, fmt.Sprintf(`document.activeElement.matches(%q) && document.activeElement.innerText.includes(%q)`, selector, text)) {
			return
		}
		tab.Keys(key)
	}
	t.Fatalf("the key %q does not lead to %q in %s; the focus is in %s", key, text, selector, browsertest.Eval[string](tab, `document.activeElement.outerHTML`))
}

// actByKeyboardOnly: without a mouse, a person approves, finds an application and an action with
// the palette, syncs, cancels, and rolls back.
func actByKeyboardOnly(t *testing.T, e *env) {
	const (
		name      = "banking"
		arrowDown = "\u0301" // as the package kb calls it
	)
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.AwaitReady()
	row := rowOf("now", name)
	tab.AwaitText(row, name)
	focus(t, tab, "j", row+" a", name)
	tab.Keys("a")
	tab.AwaitText("dialog h1", "Approve banking?")
	focus(t, tab, "\t", "dialog input[name=reason]", "")
	tab.Keys("by keys\r")
	tab.AwaitText("dialog", "You have approved banking")
	e.await(t, name, stateSynced)
	if got, want := decisionsOf(e.last(t, name)), "owner APPROVED: by keys"; got != want {
		t.Errorf("the decisions are %q, want %q", got, want)
	}
	tab.Keys("\x1b")
	tab.AwaitGone("dialog")

	tab.Keys("/")
	tab.Await("the palette", `document.activeElement.matches("#palette input")`)
	tab.Keys(name)
	tab.AwaitText(`#palette-results .hits[data-text="banking"] a`, name)
	tab.Keys("\r")
	tab.Await("the application", `location.pathname.startsWith("/applications/banking")`)
	tab.AwaitReady()
	first := e.last(t, name).Id
	tab.Keys("s")
	tab.AwaitText("dialog h1", "Sync banking?")
	focus(t, tab, "\t", "dialog button", "Sync")
	tab.Keys("\r")
	tab.AwaitText("dialog #command", "Done")
	synced := e.awaitStage(t, name, first, "gate")
	if got := synced.Trigger.Commander; got != "owner" {
		t.Errorf("the sync was asked for by %q", got)
	}

	focus(t, tab, "\t", "dialog #command a", "Open the deployment")
	tab.Keys("\r")
	tab.Await("the deployment", fmt.Sprintf(`location.pathname === %q`, "/deployments/"+synced.Id))
	tab.AwaitReady()
	focus(t, tab, "\t", ".summary .button", "Cancel")
	tab.Keys("\r")
	tab.AwaitText("dialog h1", "Cancel the deployment of banking?")
	focus(t, tab, "\t", "dialog button", "Cancel the deployment")
	tab.Keys("\r")
	tab.AwaitText("dialog", "is being cancelled")
	if d := e.awaitLast(t, name, first, deploymentCancelled); d.Id != synced.Id {
		t.Errorf("cancelled is %s, want %s", d.Id, synced.Id)
	}
	tab.Keys("\x1b")
	tab.AwaitGone("dialog")

	next := fixturesByName()[name]
	next.version = "v2"
	e.push(t, "Higher prices", next)
	second := e.awaitStage(t, name, synced.Id, "gate")
	if _, err := e.control.ApproveStage(e.ctx, &controlv1.ApproveStageRequest{DeploymentId: second.Id, StageId: "gate"}); err != nil {
		t.Fatal(err)
	}
	e.awaitNext(t, name, synced.Id)
	tab.Keys("/")
	tab.Await("the palette", `document.activeElement.matches("#palette input")`)
	tab.Keys("rollback banking")
	tab.AwaitText(`#palette-results .hits[data-text="rollback banking"] a`, "Roll back banking")
	focus(t, tab, arrowDown, "#palette-results a", "Roll back banking")
	tab.Keys("\r")
	tab.AwaitText("dialog h1", "Roll banking back?")
	focus(t, tab, "\t", "dialog button", "Roll back")
	tab.Keys("\r")
	tab.AwaitText("dialog", "banking goes back to "+e.first[:7])
	e.awaitNext(t, name, second.Id)
	if got := e.image(t, name); got != "registry.example/banking:v1" {
		t.Errorf("the live image is %s, want v1", got)
	}
	if got := e.application(t, name).GetHold().GetHeldBy(); got != "owner" {
		t.Errorf("it is held by %q, want owner", got)
	}
}
