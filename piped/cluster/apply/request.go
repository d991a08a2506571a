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

// Request describes a set of objects to apply for one application.
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
	// LastSuccess is when the application's last successful deployment ended; zero without
	// one. Jobs of the inventory that were applied before have finished.
	LastSuccess time.Time

	// HookRun identifies a run of hooks; "" when the objects are not hooks. Hooks that run to
	// completion (RunsToEnd) are executed once per run: a live one of an earlier run is
	// recreated, one of this run is not written. A hook in Created that does not exist is an
	// error of kind Invalid, because its result is unknown.
	HookRun string

	// TakeOver permits to apply objects that another application owns.
	TakeOver bool
	// Adopt permits to apply objects that PipeCD applied for any agent and application:
	// those with its annotations and without manifest.LabelApplication.
	Adopt               bool
	AutoCreateNamespace bool // create missing namespaces of new objects
	// Yield are the rules for fields not managed by Git (Yielded). An object is created
	// with these fields; later applies do not change them.
	Yield []config.IgnoreRule

	// ApplicationExists reports whether this agent still has an application. Objects whose
	// owner it no longer has may be taken over. Nil means that every owner exists.
	ApplicationExists func(applicationID string) bool
	// Describe returns, for messages, the name of an application of this agent and where it
	// is configured; "" when it is unknown. Nil: all applications are unknown.
	Describe func(applicationID string) string

	// Claim is called once, with all objects of the set, after the checks and before the
	// first write. After an error nothing is written: another application that is deployed
	// concurrently may have claimed one of the objects. Nil claims none.
	Claim func(ctx context.Context, refs []deploy.ObjectRef) error

	// Journal records the apply; nil records nothing. Created, Restarts and Reached pass the
	// records of an interrupted run to the repeated run.
	Journal Journal
	// Created are the objects that the interrupted run was about to create (Intent.Creates).
	// Those that exist now were created by this deployment.
	Created []deploy.ObjectRef
	// Restarts are the restarts that the interrupted run decided on (Intent.Restarts). Undo
	// are the restarts by earlier stages that a rollback reverts. The keys of both are
	// deploy.ObjectRef.Key of the workload.
	Restarts map[string]ConfigChange
	Undo     map[string]ConfigChange
	// Reached are the objects, by deploy.ObjectRef.Key, whose Reach is recorded already.
	// Intent.Reach omits them.
	Reached map[string]bool

	// DriftedSince is, by deploy.ObjectRef.Key, when an object was first known to differ from
	// Git. If the apply restores a ConfigMap or Secret, pods that started after that time
	// have read other content than Git's.
	DriftedSince map[string]time.Time

	// Propagation is the mode in which changed ConfigMaps and Secrets reach the pods of
	// workloads without an annotation of their own; "" is auto. Named are ConfigMaps and
	// Secrets that are not in the set but are propagated as well.
	Propagation kubernetes.PropagationMode
	Named       []manifest.Reference

	Log deploy.StageLog
}

// Journal records what an apply is about to do and what it has done, so that a repeated run
// continues an interrupted one. If a method returns an error, Apply still writes the other
// objects of the same level, and then returns that error. It reverts no write.
type Journal interface {
	// Begin is called once, after all checks and before the first write. After an error
	// nothing is written.
	Begin(ctx context.Context, intent Intent) error
	// BeforeWrite is called before each write of a workload. Live is the live workload, nil
	// when it does not exist or is recreated. Planned is the API server's answer to the dry
	// run, nil without one. After an error the workload is not written.
	BeforeWrite(ctx context.Context, obj manifest.Object, live, planned *unstructured.Unstructured) error
	// AfterWrite is called after each write. Result is the API server's answer if the object
	// is a workload, otherwise nil. BeforeWrite and AfterWrite are called concurrently for
	// different objects.
	AfterWrite(ctx context.Context, obj manifest.Object, result *unstructured.Unstructured, item deploy.InventoryItem) error
	// AfterWave is called after each wave but the last. Wave are its objects, without those
	// of Result.Expired, and result is that of all waves so far. Apply writes the next wave
	// when AfterWave returns nil.
	AfterWave(ctx context.Context, wave []manifest.Object, result Result) error
}

// Intent describes what an apply is about to do.
type Intent struct {
	// Creates are the objects that do not exist yet.
	Creates []deploy.ObjectRef
	// Restarts are the workloads, by deploy.ObjectRef.Key, whose config-hash changes because
	// their configuration has changed. A repeated run cannot detect that once the
	// configuration is written.
	Restarts map[string]ConfigChange
	// Reach is the Reach of the existing objects that run pods, before the first write.
	// Empty for hooks.
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

// Result describes what an apply did. After an error, all fields cover only the objects that
// are known to be applied.
type Result struct {
	// Items is the inventory of the complete set, including unchanged objects.
	Items []deploy.InventoryItem
	// Written counts the objects that were sent, Unchanged those that were not.
	Written, Unchanged int
	// Expired are the Jobs among Items that have finished and that Kubernetes has deleted
	// because of their ttlSecondsAfterFinished. They were not sent.
	Expired []deploy.InventoryItem
	// Reach is the Reach of the objects of the set that run pods, after the apply. Contents
	// are the contents of the set's ConfigMaps and Secrets, by deploy.ObjectRef.Key.
	Reach    []Reach
	Contents map[string]Content
	// Live contains every workload of the set as the API server last returned it, including
	// unchanged ones.
	Live map[deploy.ObjectRef]*unstructured.Unstructured
}
