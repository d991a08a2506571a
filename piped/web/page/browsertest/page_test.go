package browsertest_test

import (
	"testing"

	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/web/page/browsertest"
)

// TestPage uses the page as people do, with one agent, one cluster and one browser. The tests
// of the first group run side by side; the others need the agent for themselves.
func TestPage(t *testing.T) {
	e := newEnv(t, "", fixtures(healthy(t))...)
	e.drift(t, "drifting")
	e.register(t)
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *env){
			"sign in with the owner key":      signInWithOwnerKey,
			"views":                           showEveryView,
			"dialogs":                         showDialogs,
			"a long analysis":                 showLongAnalysis,
			"without scripts":                 readWithoutScript,
			"plots":                           openFromPlot,
			"objects and the log of a pod":    openObjects,
			"folded levels":                   openFoldedLevels,
			"search":                          searchAsYouType,
			"saved filters":                   saveFilter,
			"columns":                         chooseColumns,
			"a new plan preview":              followPlanPreviews,
			"copy a configuration":            copyConfiguration,
			"bulk sync":                       syncSelected,
			"approve with a reason":           approveWithReason,
			"keyboard alone":                  useKeyboardOnly,
			"keys of tabs":                    openTabsByKey,
			"keys of objects and stages":      moveByKey,
			"first connection fails":          retryFirstConnection,
			"two people approve at once":      approveAtOnce,
			"session ends during an action":   endSessionDuringAction,
			"viewer":                          seeAsViewer,
			"reject, retry and cancel":        rejectRetryCancel,
			"sync to a commit and skip":       syncToCommitAndSkip,
			"from drift to deletion":          runApplication,
			"confirm deletions":               confirmDeletions,
			"a plan of OpenTofu":              approvePlan,
			"take over live objects":          takeOverObjects,
			"leave live objects alone":        leaveObjects,
			"cancel with a chosen rollback":   cancelWithRollback,
			"disable and enable a user":       disableAndEnableUser,
			"API keys":                        createAndDisableKey,
			"end a session":                   endSession,
			"actions with the keyboard alone": actByKeyboardOnly,
			"hostile commit":                  showHostileCommit,
			"browser reports what goes wrong": reportProblems,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, e)
			})
		}
	})
	t.Run("replay and drop notifications", func(t *testing.T) { replayAndDrop(t, e) })
	t.Run("counts", func(t *testing.T) { countApplications(t, e) })
	t.Run("restart of the agent", func(t *testing.T) { reconnectAfterRestart(t, e) })
	e.stop() // if the test above did not run
	e.run(t) // the agent that a test starts ends with it
	t.Run("restart during a log", func(t *testing.T) { restartDuringLog(t, e) })
}

// TestPageOnPostgreSQL: with the other store, a user signs in, syncs an application from its view,
// and sees the new version there without loading the view again.
func TestPageOnPostgreSQL(t *testing.T) {
	web := fixtures("")[0]
	e := newEnv(t, pgtest.Start(t).NewDSN(t), web)
	tab := e.signIn(t, e.ownerKey(t), "/applications/web")
	tab.AwaitText("main h1", "web is live at "+e.first[:7])
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
	browsertest.Eval[bool](tab, `window.kept = true`)
	before := e.last(t, "web").Id
	tab.Click(".summary .button", "Sync")
	tab.AwaitText("dialog h1", "Sync web?")
	tab.Click("dialog button", "Sync")
	tab.AwaitText("dialog #command", "Done")
	e.awaitNext(t, "web", before)
	tab.Click("dialog [data-close]", "")
	tab.AwaitGone("dialog")
	web.version = "v2"
	commit := e.push(t, "Second version", web)
	tab.AwaitText("main h1", "web is live at "+commit[:7])
	if !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
	if got := e.image(t, "web"); got != "registry.example/web:v2" {
		t.Errorf("the live image is %s", got)
	}
}
