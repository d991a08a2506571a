package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes an administrator's kubeconfig that stands alone:
// the certificates are in it, so it can be copied anywhere.
func writeKubeconfig(d dir, p ports) error {
	read := func(name string) (raw []byte, err error) {
		if raw, err = os.ReadFile(d.path("certs", name)); err != nil {
			err = fmt.Errorf("reading the cluster's certificates: %w; remove %s to have them made anew", err, d.path("certs"))
		}
		return raw, err
	}
	ca, err := read("ca.crt")
	if err != nil {
		return err
	}
	cert, err := read("admin.crt")
	if err != nil {
		return err
	}
	key, err := read("admin.key")
	if err != nil {
		return err
	}
	config := api.NewConfig()
	config.Clusters["devcluster"] = &api.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", p["apiserver"]), CertificateAuthorityData: ca}
	config.AuthInfos["devcluster"] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["devcluster"] = &api.Context{Cluster: "devcluster", AuthInfo: "devcluster"}
	config.CurrentContext = "devcluster"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	if err := writeFile(d.kubeconfig(), raw); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// clientConfig returns the client configuration of a kubeconfig, without the
// client's own rate limit: everything here is on one machine.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	config.UserAgent = "devcluster"
	return config, nil
}
