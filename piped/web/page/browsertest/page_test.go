package browsertest_test

import (
	"testing"
)

// TestPage uses the page as people do, with one agent, one cluster and one browser. The tests
// of the first group run side by side; the others need the agent for themselves.
func TestPage(t *testing.T) {
	e := newEnv(t)
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *env){
			"sign in with the owner key":      signInWithOwnerKey,
			"views":                           showEveryView,
			"objects and the log of a pod":    openObjects,
			"search":                          searchAsYouType,
			"bulk sync":                       syncSelected,
			"approve with a reason":           approveWithReason,
			"keyboard alone":                  useKeyboardOnly,
			"keys of tabs":                    openTabsByKey,
			"first connection fails":          retryFirstConnection,
			"two people approve at once":      approveAtOnce,
			"session ends during an action":   endSessionDuringAction,
			"viewer":                          seeAsViewer,
			"hostile commit":                  showHostileCommit,
			"browser reports what goes wrong": reportProblems,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, e)
			})
		}
	})
	t.Run("restart of the agent", func(t *testing.T) { reconnectAfterRestart(t, e) })
}
