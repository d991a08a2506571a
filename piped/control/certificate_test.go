package control_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
)

// TestCertificateIsReplaced: connections after SetIdentity get the new certificate; open
// ones continue.
func TestCertificateIsReplaced(t *testing.T) {
	oldCert, oldKey := certificatetest.Write(t, t.TempDir())
	newCert, newKey := certificatetest.Write(t, t.TempDir())
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.CertFile, c.KeyFile = oldCert, oldKey })
	health := func(trusted string) grpc_health_v1.HealthClient {
		t.Helper()
		creds, err := credentials.NewClientTLSFromFile(trusted, "")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(agent.Server.Addr(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return grpc_health_v1.NewHealthClient(conn)
	}
	before := health(oldCert)
	check := func(what string, c grpc_health_v1.HealthClient, answered bool) {
		t.Helper()
		if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); (err == nil) != answered {
			t.Errorf("%s: error %v, want an answer: %t", what, err, answered)
		}
	}
	check("the first certificate", before, true)
	check("a certificate that is not shown yet", health(newCert), false)

	next, err := certificate.Files{Section: "api", Cert: newCert, Key: newKey}.Load()
	if err != nil {
		t.Fatal(err)
	}
	agent.Server.SetIdentity(next)
	check("an open connection", before, true)
	check("the new certificate", health(newCert), true)
	check("the first certificate after it was replaced", health(oldCert), false)
}
