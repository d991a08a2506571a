package apply

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Request is one set of objects to apply for one application.
type Request struct {
	ApplicationID string
	PipedID       string
	DeploymentID  string
	Commit        string
	VariantKey    string // of the variant annotation; "" for none
	VariantValue  string // of the variant annotation
	Variant       string // InventoryItem.Variant: primary, canary or baseline

	Objects   []manifest.Object      // resolved (Cluster.Resolve)
	Inventory []deploy.InventoryItem // of the application, as stored
	// LastSuccess is when the application's last successful deployment ended, zero
	// without one: Jobs of the inventory that were applied before have finished.
	LastSuccess time.Time

	// HookRun identifies the run of hooks; "" when the objects are no hooks. Objects that
	// run to completion (RunsToEnd) run once per run: one of an earlier run is deleted and
	// created anew, one of this run is left alone. One in Created that is gone is an
	// error, because its result is unknown.
	HookRun string

	// TakeOver permits to apply objects that another application owns.
	TakeOver bool
	// Adopt permits to apply objects that PipeCD applied for any agent and application:
	// those with its annotations and without manifest.LabelApplication.
	Adopt               bool
	AutoCreateNamespace bool
	// Yield are the rules for fields not managed by Git (Yielded). An object is created
	// with these fields; later applies do not change them.
	Yield []config.IgnoreRule

	// ApplicationExists reports whether the owner of a live object still exists among
	// this agent's applications. Objects of removed applications may be taken over. Nil
	// counts every owner as existing.
	ApplicationExists func(applicationID string) bool
	// Describe names an application of this agent for a person, with where it is
	// configured; "" when it is not known. Nil knows none.
	Describe func(applicationID string) string

	// Claim is called once before the first write with all objects of the set. Its
	// error keeps everything from being written: another application that is deployed
	// at the same time may have claimed one of them since it was read. Nil claims none.
	Claim func(ctx context.Context, refs []deploy.ObjectRef) error

	// Journal records the apply; nil records nothing. Created, Restarts and Reached hand a
	// repeated run what an interrupted one recorded.
	Journal Journal
	// Created are the objects that an interrupted run was about to create (Intent.Creates):
	// one of them that is live now was created by this deployment.
	Created []deploy.ObjectRef
	// Restarts are the restarts that an interrupted run decided on (Intent.Restarts). Undo
	// are those of the stages that a rollback takes back.
	Restarts map[string]ConfigChange
	Undo     map[string]ConfigChange
	// Reached are the workloads, by key, whose reach is recorded already: Intent.Reach
	// leaves them out.
	Reached map[string]bool

	// DriftedSince says since when objects are known to differ from Git, by key: pods that
	// started since then read other content of those that the apply restores.
	DriftedSince map[string]time.Time

	// Propagation says how changed ConfigMaps and Secrets reach the pods of workloads
	// that do not say so themselves; "" is auto. Named are those that count although
	// they are not in the set.
	Propagation kubernetes.PropagationMode
	Named       []manifest.Reference

	Log deploy.StageLog
}

// Journal records what an apply is about to do and what it has done, so that a repeated
// run continues where an interrupted one ended. Apply returns the error of any method and
// sends nothing more than what is written at the same time; what was written stays.
type Journal interface {
	// Begin is called once, after all checks and before the first write. After an error
	// nothing is written.
	Begin(ctx context.Context, intent Intent) error
	// BeforeWrite is called before each write of a workload. Live is the workload as it
	// is, nil when there is none; planned is the API server's answer to the dry run, nil
	// without one. After an error the workload is not written.
	BeforeWrite(ctx context.Context, obj manifest.Object, live, planned *unstructured.Unstructured) error
	// AfterWrite is called after each write, with the API server's answer if the object is
	// a workload, else with nil. BeforeWrite and AfterWrite are called concurrently for
	// different objects.
	AfterWrite(ctx context.Context, obj manifest.Object, result *unstructured.Unstructured, item deploy.InventoryItem) error
	// AfterWave is called after each wave but the last with its objects, without those
	// that have expired, and the result of all waves so far. The next wave is written when
	// it returns nil.
	AfterWave(ctx context.Context, wave []manifest.Object, result Result) error
}

// Intent is what an apply is about to do.
type Intent struct {
	// Creates are the objects that do not exist yet.
	Creates []deploy.ObjectRef
	// Restarts are the workloads, by key, whose config-hash changes because their
	// configuration did. A repeated run cannot detect that any more once the
	// configuration is written.
	Restarts map[string]ConfigChange
	// Reach is the configuration whose changes running pods of the set see, as it is
	// before the first write (Reach.Configs). Empty for hooks.
	Reach []Reach
}

// NoJournal is a Journal that records nothing.
type NoJournal struct{}

// Begin returns nil.
func (NoJournal) Begin(context.Context, Intent) error { return nil }

// BeforeWrite returns nil.
func (NoJournal) BeforeWrite(context.Context, manifest.Object, *unstructured.Unstructured, *unstructured.Unstructured) error {
	return nil
}

// AfterWrite returns nil.
func (NoJournal) AfterWrite(context.Context, manifest.Object, *unstructured.Unstructured, deploy.InventoryItem) error {
	return nil
}

// AfterWave returns nil.
func (NoJournal) AfterWave(context.Context, []manifest.Object, Result) error { return nil }

// Result says what an apply did.
type Result struct {
	// Items is the inventory of the complete set, unchanged objects included;
	// after an error it holds what is known to be applied.
	Items []deploy.InventoryItem
	// Written counts the objects that were sent, Unchanged those that were not.
	Written, Unchanged int
	// Expired are the Jobs among Items that have finished and were deleted by
	// Kubernetes, as their ttlSecondsAfterFinished asks for; they were not sent.
	Expired []deploy.InventoryItem
	// Reach is the configuration whose changes the pods of the set's workloads see while
	// they run, as it is now, and Contents the hash of what the set's ConfigMaps and
	// Secrets that are written hold, by key.
	Reach    []Reach
	Contents map[string]Content
	// Live holds every workload of the set as the API server last returned it,
	// those that were not written as well.
	Live map[deploy.ObjectRef]*unstructured.Unstructured
}
