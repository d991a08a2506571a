package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// removeTimeout bounds the removal of the namespace: pods get half a minute to end.
const removeTimeout = 3 * time.Minute

// useCluster makes a namespace in somebody's own cluster. Nothing else of the cluster is
// changed, but for the Lease with which every agent shows that it is there.
func (d *demo) useCluster(ctx context.Context) error {
	chosen, err := d.copyKubeconfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig %s: %w", d.stage.kubeconfig, err)
	}
	client, err := d.client()
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the cluster of the context %q of %s: %w", chosen, d.stage.kubeconfig, err)
	}
	d.out.fact("cluster", fmt.Sprintf("context %q of %s, Kubernetes %s", chosen, d.stage.kubeconfig, version.GitVersion))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.stage.namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "piped-demo"}}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a namespace for the demo: %w", err)
	}
	d.made = true
	d.out.fact("namespace", d.stage.namespace)
	d.out.note("Everything is in this namespace, and for a while in one for a preview, and goes with them. After a crash: kubectl delete namespace %s %s",
		d.stage.namespace, d.stage.previewNamespace())
	return nil
}

// copyKubeconfig copies the current context of the kubeconfig: the demo stays in its
// cluster when somebody changes the context meanwhile.
func (d *demo) copyKubeconfig() (chosen string, err error) {
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: d.stage.kubeconfig}, nil).RawConfig() // with absolute paths
	if err != nil {
		return "", err
	}
	if err := clientcmdapi.MinifyConfig(&loaded); err != nil {
		return "", err
	}
	if err := clientcmdapi.FlattenConfig(&loaded); err != nil {
		return "", err
	}
	return loaded.CurrentContext, clientcmd.WriteToFile(loaded, d.kubeconfig())
}

// leaveCluster removes what the demo made in somebody's own cluster. It is called after
// the agent has ended.
func (d *demo) leaveCluster() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	client, err := d.client()
	if err != nil {
		return err
	}
	errs := []error{d.removeLease(ctx, client)}
	for _, name := range []string{d.stage.previewNamespace(), d.stage.namespace} {
		err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			err = awaitGone(ctx, client, name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the namespace %s: %w; do it by hand: kubectl delete namespace %[1]s", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeLease removes the Lease that names the agent, which has released it.
func (d *demo) removeLease(ctx context.Context, client kubernetes.Interface) error {
	if d.agent == nil {
		return nil
	}
	name := "piped-" + d.agent.ID
	err := client.CoordinationV1().Leases(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // then the agent could not make it, either
		return nil
	}
	return fmt.Errorf("remove the agent's Lease %s/%s: %w", metav1.NamespaceDefault, name, err)
}

// awaitGone waits until a namespace is gone.
func awaitGone(ctx context.Context, client kubernetes.Interface, name string) error {
	for {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("it is not gone yet"), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
