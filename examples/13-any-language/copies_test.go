// Gives each test a copy of a prepared cluster. Start the cluster first:
//
//	pinnace up --ephemeral --control --port 0 --kubeconfig kubeconfig &
//	KUBECONFIG=$PWD/kubeconfig go test ./...
package copies

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// control sends a request to the control endpoint of a cluster and decodes the answer.
func control(t *testing.T, cluster *kubernetes.Clientset, verb, path string, body, answer any) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cluster.RESTClient().Verb(verb).AbsPath("/control", path).
		SetHeader("Content-Type", "application/json").Body(sent).DoRaw(context.Background())
	if err != nil {
		t.Fatalf("%s /control/%s: %v", verb, path, err)
	}
	if answer != nil {
		if err := json.Unmarshal(got, answer); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, kubeconfig []byte) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

// fork returns a copy of the cluster, which is deleted at the end of the test.
func fork(t *testing.T, cluster *kubernetes.Clientset) *kubernetes.Clientset {
	t.Helper()
	var made struct{ Name, Kubeconfig string }
	control(t, cluster, "POST", "forks", map[string]any{}, &made)
	t.Cleanup(func() { control(t, cluster, "DELETE", "forks/"+made.Name, nil, nil) })
	return connect(t, []byte(made.Kubeconfig))
}

func TestALostAnswer(t *testing.T) {
	kubeconfig, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	prepared := connect(t, kubeconfig)
	copied := fork(t, prepared)

	// The next create is stored, but its client gets a timeout.
	control(t, copied, "POST", "faults", map[string]any{
		"fault": "timeout", "committed": true, "verb": "create", "resource": "configmaps", "times": 1,
	}, nil)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "from-go"}}
	maps := copied.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), settings, metav1.CreateOptions{}); !apierrors.IsTimeout(err) {
		t.Fatalf("expected a timeout, found %v", err)
	}
	if _, err := maps.Get(t.Context(), "from-go", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}

	// An hour passes in a moment.
	control(t, copied, "POST", "clock", map[string]any{"advance": 3600}, nil)

	var history struct {
		Items []struct{ Action, Resource, Key, Client string }
	}
	control(t, copied, "GET", "history", nil, &history)
	for _, one := range history.Items {
		t.Log(one.Action, one.Resource, one.Key, "by", one.Client)
	}

	// Nothing of it reached the prepared cluster.
	_, err = prepared.CoreV1().ConfigMaps("default").Get(t.Context(), "from-go", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("expected not found, found %v", err)
	}
}
