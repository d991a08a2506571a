package page

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestShortened: the headline of a reason is its first line or sentence, cut between words.
func TestShortened(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		more       bool
	}{
		"empty":                   {"", "", false},
		"spaces around":           {"  rejected by jane\n", "rejected by jane", false},
		"short":                   {"web: 1 of 2 pods available in ReplicaSet web-7d9f8c5b6d, 1 old pod", "web: 1 of 2 pods available in ReplicaSet web-7d9f8c5b6d, 1 old pod", false},
		"cancelled":               {"Cancelled by ann; not rolled back, as asked", "Cancelled by ann; not rolled back, as asked", false},
		"two sentences":           {"The last success could not be restored: it is gone. Sync the application.", "The last success could not be restored: it is gone.", true},
		"a question":              {"Is the gateway installed? Its kind is not known.", "Is the gateway installed?", true},
		"two lines":               {"Stage SCRIPT_RUN failed: the script failed\nexit code 7", "Stage SCRIPT_RUN failed: the script failed …", true},
		"git":                     {"cannot fetch: exit status 128:\nfatal: could not read Username: terminal prompts disabled\n", "cannot fetch: exit status 128: …", true},
		"line of two sentences":   {"It failed. See below.\nmore", "It failed.", true},
		"line that is a sentence": {"It failed.\nmore", "It failed.", true},
		"version":                 {"image registry.example/web:v1.2 cannot be pulled", "image registry.example/web:v1.2 cannot be pulled", false},
		"version at the end":      {"cannot pull web:v1.2. The registry does not answer.", "cannot pull web:v1.2.", true},
		"field path":              {"spec.trafficRouting.httpRoute.verify.timeout is over", "spec.trafficRouting.httpRoute.verify.timeout is over", false},
		"abbreviation":            {"field managers, e.g. Helm, write it", "field managers, e.g. Helm, write it", false},
		"abbreviation, capital":   {"another writer (i.e. Helm) changed it", "another writer (i.e. Helm) changed it", false},
		"initial":                 {"rejected by J. Doe. Ask her.", "rejected by J. Doe.", true},
		"no capital follows":      {"held: see the runbook no. 5. and wait", "held: see the runbook no. 5. and wait", false},
		"Chinese":                 {"部署失败。请重试。", "部署失败。", true},
		"long": {
			"Stage K8S_TRAFFIC_ROUTING failed: the canary gets no traffic, because it was not ready for it within 10m0s: 0 of the 2 pods are ready; rolled back to commit 84e16d9",
			"Stage K8S_TRAFFIC_ROUTING failed: the canary gets no traffic, because it was not ready for it within 10m0s: 0 of the 2 …", true,
		},
		"a pod's trouble": {
			"Stage K8S_SYNC failed: Deployment shop/web: the progress deadline of 5s is exceeded: 0 of 1 new pods are available; pod web-7d9f8c5b6d-x2x4k: container app: ImagePullBackOff: web:v9 cannot be pulled; rolled back to commit 84e16d9",
			"Stage K8S_SYNC failed … pod web-7d9f8c5b6d-x2x4k: container app: ImagePullBackOff: web:v9 cannot be pulled; rolled …", true,
		},
		"a pod's trouble that is shown": {
			"web is not live: 0 of 1 pods are available; pod web-7d9f8: container app: ImagePullBackOff: web:v9 cannot be pulled from anywhere at all",
			"web is not live: 0 of 1 pods are available; pod web-7d9f8: container app: ImagePullBackOff: web:v9 cannot be pulled …", true,
		},
		"comma before the cut": {strings.Repeat("word ", 22) + "another, more and more of it", strings.Repeat("word ", 22) + "another …", true},
		"one word":             {strings.Repeat("a", 500), strings.Repeat("a", 118) + "…", true},
		"umlauts":              {strings.Repeat("ü", 120), strings.Repeat("ü", 120), false},
		"accents of their own": {strings.Repeat("a", 117) + "u\u0308\u0308" + strings.Repeat("a", 50), strings.Repeat("a", 117) + "…", true},
	} {
		got, more := shortened(tc.text)
		if got != tc.want || more != tc.more {
			t.Errorf("%s: %q, %t; want %q, %t", name, got, more, tc.want, tc.more)
		}
	}
}

// FuzzShortened: a headline is short, and begins as the text does.
func FuzzShortened(f *testing.F) {
	f.Add("web is not live at 1f2ac83: " + strings.Repeat("word ", 20) + "; pod web: ImagePullBackOff" + strings.Repeat(" and more", 20))
	f.Add("Stage K8S_SYNC failed: web: container app: ImagePullBackOff: web:v9. See e.g. the events.\nmore")
	f.Fuzz(func(t *testing.T, text string) {
		headline, more := shortened(text)
		if n := utf8.RuneCountInString(headline); n > headlineLength+2 {
			t.Errorf("%q has %d characters", headline, n)
		}
		if begin, _, _ := strings.Cut(strings.TrimRight(headline, " …"), " … pod "); utf8.ValidString(text) && !strings.HasPrefix(strings.TrimSpace(text), begin) {
			t.Errorf("%q does not begin as %q", headline, text)
		}
		if !more && headline != strings.TrimSpace(text) {
			t.Errorf("%q lacks a part of %q", headline, text)
		}
	})
}

// TestLongReasonOfADeployment: the headline is short, and all of the reason is below it as text.
func TestLongReasonOfADeployment(t *testing.T) {
	d := waitingDeployment()
	d.Status, d.StatusReason = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, "Stage K8S_SYNC failed: it was refused\n<b>admission webhook</b>: denied"
	d.Stages[0].Status, d.Stages[0].StatusReason = modelv1.StageStatus_STAGE_FAILURE, "it was refused\n<b>admission webhook</b>: denied"
	f := approvable(t)
	f.on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: d})
	body := bodyOf(t, f.get("/deployments/d-checkout?tab=timeline"))
	for _, want := range []string{
		"is not deployed: Stage K8S_SYNC failed: it was refused …</span>", "<summary>Whole reason</summary>",
		"Stage K8S_SYNC failed: it was refused\n&lt;b&gt;admission webhook&lt;/b&gt;: denied</div>", ">it was refused …</span>",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
}

// TestSentence: the first letter becomes a capital, whatever its length in bytes, unless it begins
// the name of a field or a file.
func TestSentence(t *testing.T) {
	for text, want := range map[string]string{"": "", " it failed ": "It failed.", "élan": "Élan.", "why?": "Why?", "cut …": "Cut …", "failed: no disk": "Failed: no disk.",
		"spec.replicas of Deployment web differs": "spec.replicas of Deployment web differs.", "web/app.yaml:3 is invalid": "web/app.yaml:3 is invalid."} {
		if got := sentence(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestPathParts: a field path breaks before its parts only, and loses nothing.
func TestPathParts(t *testing.T) {
	for path, want := range map[string][]string{
		"spec.containers[web].image":            {"spec", ".containers", "[web]", ".image"},
		"metadata.annotations[example.com/rev]": {"metadata", ".annotations", "[example", ".com/rev]"},
		"data":                                  {"data"}, ".dotted": {".dotted"}, "": {""},
	} {
		if got := pathParts(path); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
