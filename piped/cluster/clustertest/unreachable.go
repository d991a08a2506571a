package clustertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DiscoveryOnly returns the transport of a cluster that answers discovery requests and
// refuses every other connection. It serves ConfigMaps, and the group
// metrics.example.com, whose own server does not answer.
func DiscoveryOnly(http.RoundTripper) http.RoundTripper { return discoveryOnly{} }

type discoveryOnly struct{}

func (discoveryOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	metrics := metav1.GroupVersionForDiscovery{GroupVersion: "metrics.example.com/v1", Version: "v1"}
	switch r.URL.Path {
	case "/api":
		return answer(r, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}), nil
	case "/apis":
		return answer(r, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "metrics.example.com", Versions: []metav1.GroupVersionForDiscovery{metrics}, PreferredVersion: metrics},
		}}), nil
	case "/api/v1":
		return answer(r, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}},
		}), nil
	case "/apis/metrics.example.com/v1":
		return Refusal(r, metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "service unavailable"}), nil
	}
	return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
}

// answer returns an answer in JSON.
func answer(r *http.Request, code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic("test: " + err.Error()) // unreachable for types of the API
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}
}
