package outbound

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestMetadataAddressesAreRejected: cloud metadata services would return credentials.
func TestMetadataAddressesAreRejected(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1]:443": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.169.254]:80": true,
		"[fd00:ec2::254]:80": true, "100.100.100.200:80": true,
		"127.0.0.1:80": false, "[::1]:80": false, "10.0.0.1:443": false, "192.0.2.1:443": false,
	} {
		err := NotMetadata("tcp", address, nil)
		if (err != nil) != refused || refused && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %v, want it refused: %t", address, err, refused)
		}
	}
}

func TestPrivateAddressesAreRejected(t *testing.T) {
	for address, refused := range map[string]bool{
		"10.1.2.3:443": true, "172.16.0.1:80": true, "192.168.1.1:443": true, "127.0.0.1:80": true, "[::1]:80": true, "[fd12::1]:443": true,
		"100.64.1.1:443": true, "0.0.0.0:80": true, "[::ffff:10.0.0.1]:443": true, "169.254.169.254:80": true,
		"140.82.121.3:443": false, "100.128.0.1:443": false, "[2606:50c0::1]:443": false,
	} {
		if err := NotPrivate("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}
