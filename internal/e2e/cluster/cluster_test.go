package cluster

import (
	"os"
	"testing"

	"github.com/cohortdb/cohort/internal/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func TestTheBankIsRightWithoutFailures(t *testing.T) {
	for _, kind := range []Kind{Any, Proxies} {
		c := Start(t, Options{Network: kind, Servers: 1})
		b := c.NewBank(8)
		b.Goes(500)
		t.Logf("longest gap %v", b.Gap())
		b.Close()
	}
}
