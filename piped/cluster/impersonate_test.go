package cluster

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAs: every client of the view impersonates the user, over the connections of the
// cluster. The cluster's own clients do not impersonate.
func TestAs(t *testing.T) {
	var mu sync.Mutex
	var users []string
	connections := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		users = append(users, r.Header.Get("Impersonate-User"))
		connections[r.RemoteAddr] = true
		http.Error(w, "{}", http.StatusForbidden)
	}))
	defer server.Close()
	own, err := NewCluster(ClusterConfig{Name: "one", MasterURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	const account = "system:serviceaccount:team-a:deployer"
	view, err := own.As(account)
	if err != nil {
		t.Fatal(err)
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	var errs []error
	for _, c := range []*Cluster{own, view} {
		_, typed := c.Typed().CoreV1().ConfigMaps("x").Get(t.Context(), "a", metav1.GetOptions{})
		_, dynamic := c.Dynamic().Resource(configMaps).Namespace("x").Get(t.Context(), "a", metav1.GetOptions{})
		_, metadata := c.Metadata().Resource(configMaps).Namespace("x").Get(t.Context(), "a", metav1.GetOptions{})
		errs = append(errs, typed, dynamic, metadata)
	}
	if diff := cmp.Diff([]string{"", "", "", account, account, account}, users); diff != "" {
		t.Errorf("users: -want +got:\n%s", diff)
	}
	if len(connections) != 1 {
		t.Errorf("there were connections %v, want one", connections)
	}
	if view.discovery != own.discovery || view.Name() != own.Name() || view.RESTConfig().Impersonate.UserName != account || own.RESTConfig().Impersonate.UserName != "" {
		t.Error("the view is not the cluster in another name")
	}
	for i, c := range []*Cluster{own, own, own, view, view, view} {
		err := c.Classify(errs[i])
		if !apierrors.IsForbidden(errs[i]) || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%d: got %v (%v)", i, err, deploy.KindOf(err))
			continue
		}
		if named := strings.Contains(err.Error(), "acts as "+account); named != (c == view) {
			t.Errorf("%d: the account is named: %t: %v", i, named, err)
		}
	}
}
